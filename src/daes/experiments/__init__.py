"""Grids of trials, their log, comparison and statistical tests: what `daes compare` and `daes.paper` are built on."""

from daes.experiments.cell import Cell, CellData, CellResult, run_cell
from daes.experiments.compare import CellProgress, compare, run_cells
from daes.experiments.comparison import Comparison
from daes.experiments.significance import average_rank, t_test

__all__ = [
    "Cell",
    "CellData",
    "CellProgress",
    "CellResult",
    "Comparison",
    "average_rank",
    "compare",
    "run_cell",
    "run_cells",
    "t_test",
]
