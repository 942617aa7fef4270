"""Figures of the paper, one per module; ``info-replay figure NAME`` draws one.

* :mod:`~agents.figures.registry` has the figures by name, with their settings;
* :mod:`~agents.figures.style` is how all of them look, and writes the files;
* :mod:`~agents.figures.feature_files` and :mod:`~agents.figures.memories` read features
  and select memories from them.

A module of a figure has ``make(settings, out)``, which draws to the file ``out`` and
returns lines that say what the figure shows.
"""
