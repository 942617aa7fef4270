"""How all figures look, and how they are written: :func:`drawing`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agents.runs.files import replace_file
from agents.runs.folder import RunError

__all__ = [
    "CLASS_COLORS",
    "COLORS",
    "METHOD_COLORS",
    "check_out",
    "drawing",
    "line_style",
]

#: Okabe and Ito's palette, told apart by people who are color-blind; as in the report.
COLORS = {
    "blue": "#0072b2",
    "vermillion": "#d55e00",
    "orange": "#e69f00",
    "green": "#009e73",
    "sky": "#56b4e9",
    "purple": "#cc79a7",
    "black": "#111111",
    "gray": "#8a8a8a",
    "yellow": "#f0e442",
}

#: The colors of methods, as in the report where it has the method.
METHOD_COLORS = {
    "rs": COLORS["blue"],
    "infogs": COLORS["orange"],
    "infogs-eta0": COLORS["black"],
}

#: Colors of classes: the palette without black, which is for memory points, and two
#: more for ten classes.
CLASS_COLORS = [
    *(color for name, color in COLORS.items() if name != "black"),
    "#7a5230",
    "#2b3990",
]

# Colors and markers of methods by the names that tables give them.
_LINES = {
    "RS": ("blue", "o"),
    "WRS": ("sky", "v"),
    "CBRS": ("green", "D"),
    "GSS": ("gray", "P"),
    "FSS-Clust": ("purple", "X"),
    "InfoGS": ("orange", "s"),
    "InfoGS-RS": ("black", "^"),
    "InfoRS": ("vermillion", "o"),
}
_OTHER_LINES = [
    ("blue", "o"),
    ("vermillion", "s"),
    ("green", "D"),
    ("purple", "^"),
    ("black", "v"),
    ("orange", "P"),
    ("sky", "X"),
]

_DPI = 150
_FORMATS = (".png", ".pdf")
_STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 9,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # text stays text
}


def line_style(name: str, number: int) -> dict[str, str]:
    """Color and marker of a line: those of its method, if it is named after one.

    Args:
        name: of the line.
        number: of the line in its panel, which decides for other names.

    Example:
        >>> line_style("RS", 3)
        {'color': '#0072b2', 'marker': 'o'}
    """
    color, marker = _LINES.get(name, _OTHER_LINES[number % len(_OTHER_LINES)])
    return {"color": COLORS[color], "marker": marker}


def check_out(path: str | Path) -> Path:
    """The file of a figure, if it can be written; nothing is changed yet.

    Args:
        path: the file.

    Raises:
        RunError: if the suffix is unknown or the file cannot be written.

    Example:
        >>> check_out("figure.gif")
        Traceback (most recent call last):
            ...
        agents.runs.folder.RunError: --out must end in .png or .pdf, got 'figure.gif'
    """
    out = Path(path).expanduser()
    if out.suffix.lower() not in _FORMATS:
        raise RunError(f"--out must end in {' or '.join(_FORMATS)}, got '{path}'")
    # Long work comes before the figure: find out now.
    try:
        folder = next(each for each in out.absolute().parents if each.exists())
        if out.is_dir():
            raise IsADirectoryError("it is a folder")
        if not folder.is_dir():
            raise NotADirectoryError(f"{folder} is not a folder")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"no permission to write to {folder}")
    except OSError as error:
        raise RunError(f"cannot write {out} ({error})") from error
    return out


@contextlib.contextmanager
def drawing(
    out: Path, rows: int, columns: int, size: tuple[float, float], **options: Any
) -> Iterator[tuple[Any, Any]]:
    """A new figure in the common style, which is written at the end.

    Args:
        out: the file, whose folder is made; its suffix decides on the format.
        rows: of axes.
        columns: of axes.
        size: width and height in inches.
        **options: of matplotlib's ``Figure.subplots``.

    Yields:
        The figure and its axes, shape ``(rows, columns)``.

    Raises:
        RunError: if the file cannot be written.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        # Not pyplot's: no screen and no state that others share.
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, **options)
        yield figure, axes
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(out) as file:
                figure.savefig(file, format=out.suffix[1:].lower(), dpi=_DPI)
        except OSError as error:
            raise RunError(f"cannot write {out} ({error})") from error
