"""Settings of the Sphinx site; ``make docs`` builds it."""

from importlib.metadata import version as installed_version

project = "info-replay"
author = "the info-replay authors"
project_copyright = f"2026, {author}"
release = version = installed_version("info-replay")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
]
myst_enable_extensions = ["amsmath", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
# TorchRL's docstrings belong to TorchRL's documentation.
autodoc_inherit_docstrings = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"info-replay {release}"
html_static_path = ["_static"]
