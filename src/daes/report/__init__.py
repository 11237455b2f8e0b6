"""Pictures and pages made from a run."""

from daes.report.page import compared_in, write_comparison, write_comparisons, write_report

__all__ = ["compared_in", "write_comparison", "write_comparisons", "write_report"]
