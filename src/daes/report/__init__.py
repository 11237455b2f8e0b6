"""HTML pages and figures of runs and comparisons."""

from daes.report.comparison import compared_in
from daes.report.page import write_comparisons, write_report

__all__ = ["compared_in", "write_comparisons", "write_report"]
