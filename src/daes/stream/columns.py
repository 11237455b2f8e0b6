"""What the columns of a dataset look like in its first rows: what each is read as, why, and what may be wrong."""

import re
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from shlex import quote
from typing import Any

import numpy as np

from daes.stream.arrow import pa, pc
from daes.stream.category_text import category_text
from daes.stream.csv import CsvSource
from daes.stream.csv_rows import BLANKS
from daes.stream.dataset import Dataset
from daes.stream.schema import column_kind, is_text, is_unnamed

_ROWS = 10_000
_EXAMPLES = 3
_NEARLY = 0.9
_FEW_ROWS = 100
_LEAST_CHANGES = 0.2
"""So often does the label change from row to row in streams, for one time by chance; real ones are above 0.7."""
_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*", re.ASCII)
_WITH_COMMA = re.compile(r"\s*[-+]?\d{1,3}(\.?\d{3})*,\d+\s*|\s*[-+]?\d+,\d+\s*")
_WITH_POINT = re.compile(r"\s*[-+]?\d{1,3}(,?\d{3})*\.\d+\s*|\s*[-+]?\d*\.\d+([eE][-+]?\d+)?\s*")
_COMMA_NUMBER = re.compile(r"\s*[-+]?(\d+,?\d*|,\d+)([eE][-+]?\d+)?\s*", re.ASCII)
_THOUSANDS = re.compile(r"\s*[-+]?\d{1,3}([,'’\s]\d{3})+(\.\d*)?\s*")
_COMMA_THOUSANDS = re.compile(r"\s*[-+]?\d{1,3}([.'’\s]\d{3})+(,\d*)?\s*")
_SPACED = re.compile(r"\s.*|.*\s", re.DOTALL)
_WITH_SIGN = re.compile(r"\s*[-+]?[$€£¥]\s*[-+]?[\d.,]+\s*|\s*[-+]?[\d.,]+\s*[$€£¥%]\s*")
_DATE = re.compile(
    r"([a-z]{3},? )?((19|20)\d\d([-/.])\d{1,2}\4\d{1,2}|\d{1,2}([-/. ])(\d{1,2}|[a-z]{3})\5(19|20)\d\d)([T, ].*)?",
    re.ASCII | re.DOTALL | re.IGNORECASE,
)
_NAN = "^[-+]?nan$"
_CODE = re.compile(r"0\d[\d\s]*")
_LONG = re.compile(r"[-+]?\d{17,}")
_ID_NAME = re.compile(r"(?:.*[_\W])?(?:id|uuid|guid)|.*[a-z]I[dD]", re.DOTALL)
_EMPTY = (
    "is left out, since it is empty where the data start: if it has values later, list it in --numerical or "
    "--categorical, with the others there"
)


@dataclass(frozen=True)
class InferredColumn:
    """One column in the first rows of a dataset.

    Args:
        part: label, numerical, categorical, time or weight; "unused" for a column that is not read.
        why: what decided on that.
        distinct: number of distinct values.
        missing: fraction of missing values.
        warnings: sentences on what may be wrong.
    """

    name: str
    part: str
    why: str
    examples: tuple[str, ...]
    distinct: int
    missing: float
    warnings: tuple[str, ...] = ()


def summarize_columns(data: Dataset, *, named: Set[str] = frozenset()) -> list[InferredColumn]:
    """All columns of a dataset, in order, by its first 10,000 rows; none if the rows are arrays in memory.

    Args:
        data: the rows and their schema.
        named: columns that were named or excluded, not inferred.

    >>> import pyarrow as pa
    >>> data = Dataset.open(pa.table({"click": [0, 1, 0], "price": ["1", "2.5", "x"] , "shop": ["a", "a", "a"]}))
    >>> for column in summarize_columns(data):
    ...     print(column.name, column.part, column.why, column.examples, column.distinct, *column.warnings)
    click label its name ('0', '1') 2
    price categorical text ('1', '2.5', 'x') 3
    shop categorical text ('a',) 1 has only one value
    """
    csv = data.source if isinstance(data.source, CsvSource) else None
    try:
        tables = (data.with_source(csv.as_text()) if csv else data).from_start().iter_tables(None, _ROWS)
    except TypeError:
        return []
    table = next(iter(tables), None)
    if table is None:
        return []
    roles = data.schema.roles
    number = _COMMA_NUMBER if csv is not None and csv.format.decimal == "," else _NUMBER
    absent = csv.format.missing if csv is not None else ()  # missing numbers: text that may be a category elsewhere
    found = []
    for name in table.column_names:
        part = roles.get(name, "unused")
        values = _values(table.column(name), part, csv)
        counts = {str(pair["values"]): int(pair["counts"]) for pair in values.value_counts().to_pylist()}
        missing = 1 - len(values) / table.num_rows
        why = _why(name, part, data.arrow_schema.field(name).type, csv is not None, name in named)
        text = {value: count for value, count in counts.items() if value not in absent}
        if part == "unused":
            # Text that was probably meant to be a number: it is neither listed as categorical nor read as a number.
            lost = why == "not in --categorical" and named.isdisjoint(data.schema.numerical)
            nearly = _nearly_numbers(name, text, number, csv is not None) if lost else []
            warnings = [_EMPTY] if why == "empty" else nearly
        elif not counts:
            warnings = ["has no value in the first rows"]
        else:
            warnings = ["has only one value"] if len(counts) == 1 and not missing and part != "time" else []
            if name not in named and part == "categorical":
                nearly = _nearly_numbers(name, text, number, csv is not None)
                warnings += nearly or _odd_categories(counts, data.schema.time)
            elif name not in named and part == "numerical":
                warnings += _odd_numbers(name, counts)
            elif part == "label" and data.schema.time is None:
                warnings += _odd_order(values, counts)
        examples = tuple(counts)[:_EXAMPLES]
        found.append(InferredColumn(name, part, why, examples, len(counts), missing, tuple(warnings)))
    return found


def _values(column: Any, part: str, csv: CsvSource | None) -> Any:
    """The values that are not missing, as text."""
    number = part in ("numerical", "weight")
    if csv is not None:
        absent = csv.format.missing_categories if part == "categorical" else csv.format.missing
        if number:
            column = pc.utf8_trim(column, characters=BLANKS)
        column = column.filter(pc.invert(pc.is_in(column, value_set=pa.array(absent, pa.string()))))
    elif part == "categorical":
        with suppress(TypeError):  # not exact: reading says so, with the row
            column = category_text(column)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        text = pc.cast(column, pa.string()).drop_null()
    except pa.ArrowException:  # lists, bytes, …
        return pa.array([], pa.string())
    return text.filter(pc.invert(pc.match_substring_regex(text, _NAN, ignore_case=True))) if number else text


def _why(name: str, part: str, inferred: Any, csv: bool, named: bool) -> str:
    types = pa.types
    if part == "unused":
        if is_unnamed(name):
            return "no name"
        if types.is_null(inferred):
            return "empty"
        if named:
            return "excluded"
        if types.is_timestamp(inferred) or types.is_date(inferred):
            return "another is the time"
        kind = column_kind(inferred)
        return f"not in --{kind}" if kind in ("numerical", "categorical") else f"type {kind}"
    if named:
        return "named"
    if part == "label":
        return "its name"
    if part == "time":
        return "timestamps"
    if is_text(inferred):
        return "text"
    return ("numbers" if part == "numerical" else str(inferred)) if csv else f"type {inferred}"


def _is_unique(counts: Mapping[str, int]) -> bool:
    rows = sum(counts.values())
    return rows >= _FEW_ROWS and len(counts) > 0.95 * rows


def _odd_order(values: Any, counts: Mapping[str, int]) -> list[str]:
    """A warning for labels that follow their like far more often than by chance."""
    labels = values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy()
    by_chance = 1 - sum((count / len(labels)) ** 2 for count in counts.values())
    if len(labels) < _FEW_ROWS or np.mean(labels[1:] != labels[:-1]) >= _LEAST_CHANGES * by_chance:
        return []
    return ["comes in blocks, as if the rows were sorted by it: scores seem too good then; --time restores the order"]


def _odd_categories(counts: Mapping[str, int], time: str | None) -> list[str]:
    dates = [text for text in counts if _DATE.fullmatch(text.strip())]
    if time is None and dates and sum(counts[text] for text in dates) >= _NEARLY * sum(counts.values()):
        return [
            f"is text that looks like dates ({dates[0]}) and does not order the rows: stored as timestamps, in CSV "
            "files all as 2024-01-31 10:00:00, it would; otherwise --exclude it"
        ]
    found = []
    spaced = [text for text in counts if _SPACED.fullmatch(text)]
    if spaced and sum(counts[text] for text in spaced) >= _NEARLY * sum(counts.values()):
        first = spaced[0]
        found.append(f"has spaces around its values, which are part of them: {first!r} is not {first.strip()!r}")
    if _is_unique(counts):
        found.append("has a different value in nearly every row: if it identifies the row, --exclude it")
    return found


def _odd_numbers(name: str, counts: Mapping[str, int]) -> list[str]:
    if code := next((text for text in counts if _CODE.fullmatch(text)), None):
        return [f"looks like a code, not a number ({code}): list it in --categorical, with the others there"]
    if _ID_NAME.fullmatch(name) and all("." not in text for text in counts):
        return ["has the name of an id and is read as a number: list it in --categorical or --exclude it"]
    if _is_unique(counts) and all(text.lstrip("-").isdigit() for text in counts):
        return [
            "is an integer with a different value in nearly every row: if it is an id, list it in --categorical or "
            f"--exclude it; if it is the time: --time {quote(name)}"
        ]
    if any(_LONG.fullmatch(text) for text in counts):
        return ["has more digits than a number can keep: list it in --categorical or --exclude it"]
    return []


def _nearly_numbers(name: str, counts: Mapping[str, int], number: re.Pattern[str], csv: bool) -> list[str]:
    """A warning for text most of which looks like numbers of the given form."""
    others = {text: count for text, count in counts.items() if not number.fullmatch(text)}
    rows, odd_rows = sum(counts.values()), sum(others.values())
    if not others:
        if csv or not any("." in text for text in counts):  # numbers that were listed as a category; codes
            return []
        return ["is text, though all of its values are numbers: stored as numbers it would be numerical"]
    if list(others) == [name] and odd_rows <= (1 - _NEARLY) * rows:
        return [
            "is text, since its name is among its values: is the header repeated among the rows? With all such "
            "columns in --numerical, --bad-rows skip leaves it out"
        ]
    if any(_CODE.fullmatch(text) for text in counts):
        return []

    def of_form(form: re.Pattern[str]) -> str | None:
        """An example if nearly all values are numbers or of this form, and most of those that are no numbers."""
        found = [text for text in others if form.fullmatch(text)]
        rest = odd_rows - sum(others[text] for text in found)
        return found[0] if rest <= (1 - _NEARLY) * rows and 2 * rest < odd_rows else None

    if number is _NUMBER:
        thousands, with_other, mark, other = _THOUSANDS, _WITH_COMMA, ".", "comma"
    else:
        thousands, with_other, mark, other = _COMMA_THOUSANDS, _WITH_POINT, ",", "point"
    option = f"--decimal {',' if other == 'comma' else '.'}" if csv else "stored as numbers it would be numerical"
    # One mark may separate thousands and the other decimals; text with both, or without the other one, tells which.
    marked = any(mark in text for text in counts if text not in others)
    if example := of_form(thousands):
        unclear = not marked and all(text not in others or with_other.fullmatch(text) for text in counts)
        return [
            f"is text that looks like numbers with thousands separators ({example}): without these it would be a "
            "number" + (f"; if they are decimal {other}s: {option}" if unclear else "")
        ]
    if not marked and of_form(with_other):
        return [f"is text that looks like numbers with a decimal {other}: {option}"]
    if example := of_form(_WITH_SIGN):
        return [
            f"is text that looks like numbers with a currency or percent sign ({example}): without the sign it would "
            "be a number"
        ]
    few = len(others) <= _EXAMPLES and len(counts) > 10 * len(others)
    if odd_rows > (1 - _NEARLY) * rows and not few:
        return []
    first = list(others)[:_EXAMPLES]
    missing = quote(",".join(f'"{text}"' if "," in text else text for text in first))
    return [
        f"is text, though {1 - odd_rows / rows:.1%} of its values are numbers; {', '.join(map(repr, first))} "
        f"{'is' if len(others) == 1 else 'are'} not. If that means missing: "
        + (f"--missing {missing}; if it is a mistake: list it in --numerical, with --bad-rows skip" if csv else "null")
    ]
