"""A sweep as one self-contained HTML page: :func:`write_report`.

* :mod:`agents.report.runs`: the runs, and which row of a table each belongs to;
* :mod:`agents.report.statistics`, :mod:`agents.report.tables` and
  :mod:`agents.report.paper_numbers`: the numbers;
* :mod:`agents.report.command`: the command that makes a run again;
* :mod:`agents.report.images` and :mod:`agents.report.sheets`: what memories hold;
* :mod:`agents.report.header`, :mod:`agents.report.fragments`,
  :mod:`agents.report.payload` and :mod:`agents.report.page`: the page, with style sheet
  and script from ``assets``.
"""

from __future__ import annotations

from agents.report.command import train_command
from agents.report.page import make_page, write_report

__all__ = ["make_page", "train_command", "write_report"]
