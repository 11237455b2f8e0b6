"""The categorical columns of a run: their number of values, the share of new ones, and the load of their tables."""

from collections.abc import Sequence
from dataclasses import dataclass

from daes.formatting import NONE, count, fixed, percent
from daes.report.content import Block, Paragraph
from daes.report.features import ColumnSummary
from daes.report.run_record import RunRecord
from daes.table import Table


@dataclass(frozen=True)
class TableLoad:
    """The load of a column's table.

    Args:
        name: the column.
        rows: number of rows of the table.
        filled: the share of rows that hold a value.
        shared: the share of values that share their row with others.
    """

    name: str
    rows: int
    filled: float
    shared: float


def table_loads(run: RunRecord) -> list[TableLoad]:
    """The expected load of every table whose column has a known number of distinct values.

    If n values are hashed to m rows, a row stays empty with probability (1 − 1/m)ⁿ, and a value is alone with
    probability (1 − 1/m)ⁿ⁻¹. A vocabulary gives each value its own row while there are free ones; the rest share one.
    """
    model = run.config.get("model", {})
    vocabulary = model.get("categorical_options", {}).get("mode") == "vocabulary"
    found = []
    for name, size in model.get("sizes", {}).items():
        if name not in run.distinct or not len(run.distinct[name]):
            continue
        values = float(run.distinct[name][-1])
        if vocabulary:
            filled, shared = min(values / size, 1.0), max(values - size, 0.0) / max(values, 1.0)
        else:
            filled, shared = 1 - (1 - 1 / size) ** values, 1 - (1 - 1 / size) ** max(values - 1, 0.0)
        found.append(TableLoad(name, int(size), filled, shared))
    return found


def category_blocks(run: RunRecord, columns: Sequence[ColumnSummary], tables: Sequence[TableLoad]) -> list[Block]:
    """A table of all categorical columns, the most important first."""
    categorical = [column for column in columns if column.kind == "categorical"]
    if not categorical:
        return [Paragraph("There is no categorical column.")]
    if not tables:
        return [Paragraph("The number of values of the columns was not recorded.")]
    loads = {table.name: table for table in tables}
    mode = run.config.get("model", {}).get("categorical_options", {}).get("mode", "hash")
    explained = {
        "hash": "Every value is hashed to a row of its column’s table; the model cannot tell values on one row apart.",
        "vocabulary": "A value that has been seen often enough gets a row of its own, as long as its column’s table "
        "has a free one; all other values share one row.",
    }[mode]
    rows = []
    for column in categorical:
        known = [count(column.distinct), percent(column.fresh), percent(column.missing)]
        load = loads.get(column.name)
        table = [count(load.rows), percent(load.filled, 0), percent(load.shared, 0)] if load else [NONE] * 3
        rows.append((column.name, *known, *table, fixed(column.rise)))
    settled = all(column.fresh < 0.001 for column in categorical)
    head = ("column", "values", "new", "missing", "table rows", "in use", "shared", "LogLoss without it")
    return [
        Paragraph(
            f"{explained} “New” is the share of rows in the second half of the stream with a value never seen before, "
            "“in use” the share of the table’s rows that hold a value, “shared” the share of values that are not alone "
            "on their row; the last two are expected values. Counts above 1,024 are estimates, to about 3 %."
        ),
        Table(head, rows),
        *([Paragraph("Hardly any row of the second half has a value that was not seen before.")] if settled else []),
    ]
