"""The columns of the data as text: what each is used for, why, and what may be wrong."""

from collections.abc import Sequence, Set

from daes.cli.console import note
from daes.formatting import on_one_line, percent, shorten
from daes.stream.columns import InferredColumn, summarize_columns
from daes.stream.dataset import Dataset

_LISTED = 60
_WIDTH = 24
_EXAMPLE_WIDTH = 12


def print_columns(data: Dataset, named: Set[str], order: str | None) -> None:
    """Print the columns and the notes of a dataset to stderr, and a line about the order of its rows."""
    for line in (*columns_lines(summarize_columns(data, named=named)), *data.notes, *([order] if order else [])):
        note(line)


def columns_lines(columns: Sequence[InferredColumn]) -> list[str]:
    """One line per column, then the warnings.

    >>> from daes.stream.columns import InferredColumn
    >>> price = InferredColumn("price", "numerical", "numbers", ("1", "2"), 2, 0.5, ("is odd",))
    >>> print("\\n".join(columns_lines([price])))
    column  part       because  examples  values  missing
    price   numerical  numbers  1, 2           2     50 %
    warning: 'price' is odd
    """
    if not columns:
        return []
    cells = [("column", "part", "because", "examples", "values", "missing")]
    cells += [
        (
            shorten(on_one_line(column.name)),
            column.part,
            column.why,
            _short(", ".join(_short(on_one_line(text), _EXAMPLE_WIDTH) for text in column.examples)),
            f"{column.distinct:,}",
            percent(column.missing, 0) if column.missing else "",
        )
        for column in columns[:_LISTED]
    ]
    widths = [max(len(row[index]) for row in cells) for index in range(len(cells[0]))]
    lines = [
        "  ".join(
            text.rjust(width) if index > 3 else text.ljust(width)
            for index, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    if len(columns) > _LISTED:
        lines.append(f"… and {len(columns) - _LISTED:,} more")
    return lines + [f"warning: {column.name!r} {warning}" for column in columns for warning in column.warnings]


def _short(text: str, width: int = _WIDTH) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
