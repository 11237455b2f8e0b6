"""The summary of a table in the terminal: one line per column."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from daes.cli.console import plain_table
from daes.distribution.summary import TableSummary
from daes.formatting import compact, count, percent


def render_summary(summary: TableSummary, levels: Sequence[float], description: str) -> RenderableType:
    """Missing values, range and quantiles of every column."""
    table = plain_table()
    table.add_column("column", style="bold", min_width=8, overflow="fold")
    for heading in ("missing", "min", *(f"{100 * level:g} %" for level in levels), "max"):
        table.add_column(heading, justify="right", no_wrap=True)
    found = zip(
        summary.columns, summary.missing, summary.minimum, summary.quantile(levels), summary.maximum, strict=True
    )
    for name, missing, low, quantiles, high in found:
        share = percent(float(missing) / summary.rows if summary.rows else None)
        table.add_row(name, share, *(compact(float(value)) for value in (low, *quantiles, high)))
    text = f"{count(summary.rows)} rows; quantiles of a uniform sample of up to {count(summary.size)} values a column."
    return Group(Text(description, style="bold"), Text(text), "", table)
