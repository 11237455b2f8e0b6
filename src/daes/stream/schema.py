"""Which columns of a stream are the label, the numbers, the categories, the time and the weight."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any, Self

from daes.stream.arrow import pa

FORMAT = "daes.schema"
VERSION = 1
UNNAMED = "unnamed_"
"""A CSV column without a name is called this and its position, from 1."""
LABEL_NAMES = ("label", "click", "clicked", "target", "y")
"""Names that `infer_schema` recognises as the label, in any case."""


@dataclass(frozen=True)
class Schema:
    """The columns a model reads, by name. Validated once, here.

    Args:
        label: column of 0/1, or None if rows are only scored.
        numerical: the numerical features, in the model's order.
        categorical: the categorical features, in the model's order.
        time: column that orders the stream; it is not a feature.
        weight: column of sample weights.

    Every column has one role: a name that occurs twice is an error, and so is a schema without features.

    >>> schema = Schema(label="click", numerical=("price", "age"), categorical=("city",), time="at")
    >>> schema.columns
    ('click', 'price', 'age', 'city', 'at')
    >>> Schema.from_json(schema.to_json()) == schema
    True
    """

    label: str | None
    numerical: tuple[str, ...]
    categorical: tuple[str, ...]
    time: str | None = None
    weight: str | None = None

    def __post_init__(self) -> None:
        for role in ("numerical", "categorical"):
            object.__setattr__(self, role, _names(getattr(self, role), role))
        for role in ("label", "time", "weight"):
            if getattr(self, role) is not None:
                _check_name(getattr(self, role), role)
        roles: dict[str, str] = {}
        for name, role in self._columns():
            if name in roles:
                raise ValueError(
                    f"a column must have one role only; column {name!r} is {roles[name]} and {role}"
                    if roles[name] != role
                    else f"{role} must name each column once; {name!r} occurs twice"
                )
            roles[name] = role
        if not self.numerical and not self.categorical:
            raise ValueError("a schema needs at least one feature; numerical and categorical are empty")

    @property
    def columns(self) -> tuple[str, ...]:
        """All names: the label, the features in the model's order, time and weight."""
        return tuple(name for name, _ in self._columns())

    @property
    def roles(self) -> dict[str, str]:
        """Each of `columns` with its role: label, numerical, categorical, time or weight."""
        return dict(self._columns())

    @property
    def num_numerical(self) -> int:
        """q, the number of numerical features."""
        return len(self.numerical)

    @property
    def num_categorical(self) -> int:
        """p, the number of categorical features."""
        return len(self.categorical)

    def to_json(self) -> str:
        """The schema as JSON, readable by every later version."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=2, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; a ValueError says what is wrong with anything else."""
        try:
            stored = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"a schema must be whole, valid JSON, got {error}") from error
        if not isinstance(stored, dict) or stored.get("format") != FORMAT:
            raise ValueError(f'a schema must be a JSON object with "format": "{FORMAT}", got {text[:80]!r}')
        if stored.get("version") != VERSION:
            raise ValueError(f"this version of daes reads schemas of version {VERSION}, not {stored.get('version')!r}")
        known = {field.name for field in fields(cls)}
        given = stored.keys() - {"format", "version"}
        if given != known:
            unknown, lacking = sorted(given - known), sorted(known - given)
            raise ValueError(f"a schema has the keys {sorted(known)}; {unknown} are unknown, {lacking} are missing")
        for role in ("numerical", "categorical"):
            if not isinstance(stored[role], list):
                raise ValueError(f"{role} must be a list of column names, got {stored[role]!r}")
        return cls(**{name: stored[name] for name in known})

    def _columns(self) -> Iterator[tuple[str, str]]:
        for field in fields(self):  # in the order of `columns`
            value = getattr(self, field.name)
            for name in (value,) if isinstance(value, str) else value or ():
                yield name, field.name


def infer_schema(
    source: Any,
    *,
    label: str | None = None,
    numerical: Sequence[str] | None = None,
    categorical: Sequence[str] | None = None,
    time: str | None = None,
    weight: str | None = None,
    exclude: Sequence[str] = (),
    labelled: bool = True,
) -> Schema:
    """Make a `Schema` from column types; named columns take precedence over inference.

    A named list is the complete list of its kind. The rest is inferred from the columns that are left:

    - floats, integers and decimals are numerical; an integer is a category only if `categorical` lists it;
    - strings, booleans and dictionaries are categorical;
    - a timestamp or date is the time; if there are several, one has to be named and the others are left out;
    - the label is the column of numbers or booleans called label, click, clicked, target or y (any case), if there is
      one; two such columns are an error, because the other one would leak the answer into the features;
    - the weight is never guessed.

    Columns keep the order of the file. Columns without a value (of type null) or without a name (`unnamed_3` of a CSV
    file, `Unnamed: 2` of pandas) are left out. A column of any other type (lists, structs, binary) has to be named or
    excluded.

    Args:
        source: a pyarrow Schema, Table or RecordBatch, any other object with Arrow's C stream interface (a pandas or
            polars frame), or the path of Parquet or CSV files. The types of a CSV file are those of its first block.
        label, numerical, categorical, time, weight: column names.
        exclude: columns that are not used.
        labelled: whether the label is among the columns; if not, none is guessed.

    >>> import pyarrow as pa
    >>> table = pa.table({"click": [0, 1], "price": [0.5, 2.0], "hour": [3, 4], "city": ["Bern", "Rome"]})
    >>> infer_schema(table, categorical=["city", "hour"])
    Schema(label='click', numerical=('price',), categorical=('city', 'hour'), time=None, weight=None)
    """
    fields = _arrow_schema(source)
    types = {field.name: field.type for field in fields}
    if len(types) < len(fields):
        twice = next(name for name in fields.names if fields.names.count(name) > 1)
        raise ValueError(f"column names must be unique; {twice!r} occurs twice")
    lists = {"numerical": numerical, "categorical": categorical, "exclude": exclude}
    listed = {role: _names(names, role) for role, names in lists.items() if names is not None}
    single = {"label": label, "time": time, "weight": weight}
    named = [*chain.from_iterable(listed.values()), *filter(None, single.values())]
    if missing := [name for name in named if name not in types]:
        raise ValueError(no_such_column(missing, types))
    excluded = listed.pop("exclude")
    check_not_excluded([*chain.from_iterable(listed.values()), *filter(None, single.values())], excluded)
    if label is None and labelled:
        single["label"] = _guess_label({name: of for name, of in types.items() if name not in named})
    left = {
        name: column_kind(of)
        for name, of in types.items()
        if name not in named and name != single["label"] and not is_unnamed(name)
    }
    if time is None:
        times = [name for name, kind in left.items() if kind == "time"]
        single["time"] = _only(times, "time must be named if several columns hold timestamps")
    for kind in ("numerical", "categorical"):
        listed.setdefault(kind, tuple(name for name, other in left.items() if other == kind))
    if numerical is None or categorical is None:
        _refuse_unusable(left)
        empty = [name for name in types if pa.types.is_null(types[name])]
        if empty and not listed["numerical"] and not listed["categorical"]:
            raise ValueError(f"at least one column must have a value, got none in any row: {', '.join(empty)}")
    return Schema(numerical=listed["numerical"], categorical=listed["categorical"], **single)


def check_not_excluded(named: Iterable[str], exclude: Sequence[str]) -> None:
    """Raise if a column was given a role and excluded."""
    if both := [name for name in named if name in exclude]:
        raise ValueError(f"exclude must name columns without another role, got {', '.join(map(repr, both))}")


def no_such_column(names: Sequence[str], available: Iterable[str]) -> str:
    """The sentence for columns that do not exist, with similar names that do.

    >>> no_such_column(["prize"], ["price", "city"])
    "there is no column 'prize'; did you mean 'price'? The columns are: price, city"
    >>> no_such_column(["prize", "age"], ["price", "city"])
    "there are no columns 'prize' (did you mean 'price'?) and 'age'. The columns are: price, city"
    """
    columns = list(available)
    folded = {column.casefold(): column for column in reversed(columns)}
    hints = []
    for name in names:
        close = [folded[match] for match in get_close_matches(name.casefold(), folded, n=3)]
        hints.append(f"did you mean {' or '.join(map(repr, close))}?" if close else "")
    shown = ", ".join(columns[:20]) + (f", … ({len(columns)} in all)" if len(columns) > 20 else "")
    shown = f"The columns are: {shown or 'none'}"
    if len(names) == 1:
        return f"there is no column {names[0]!r}{f'; {hints[0]}' if hints[0] else '.'} {shown}"
    absent = [repr(name) + (f" ({hint})" if hint else "") for name, hint in zip(names, hints, strict=True)]
    return f"there are no columns {', '.join(absent[:-1])} and {absent[-1]}. {shown}"


def is_unnamed(name: str) -> bool:
    """Whether the name is empty or was made up for a column that has none."""
    return re.fullmatch(rf"(({UNNAMED}|Unnamed: )[0-9]+)?", name) is not None


def _check_name(name: object, role: str) -> None:
    if not isinstance(name, str) or not name:
        raise ValueError(f"{role} must be named by a non-empty string, got {name!r}")


def _names(names: Sequence[str], role: str) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ValueError(f"{role} must be a sequence of column names, got {names!r}")
    checked = tuple(names)
    for name in checked:
        _check_name(name, role)
    return checked


def _arrow_schema(source: Any) -> Any:
    if isinstance(source, pa.Schema):
        return source
    if isinstance(source, str | Path):
        from daes.stream.opening import open_source  # it imports this module

        return open_source(source).arrow_schema
    if hasattr(source, "schema") and isinstance(source.schema, pa.Schema):
        return source.schema
    if hasattr(source, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(source).schema
    raise TypeError(f"source must be an Arrow schema, a table or a path, got {type(source).__name__}")


def column_kind(arrow_type: Any) -> str:
    """What a column of this type is inferred to be: numerical, categorical or time; otherwise the type itself."""
    types = pa.types
    if types.is_integer(arrow_type) or types.is_floating(arrow_type) or types.is_decimal(arrow_type):
        return "numerical"
    if types.is_boolean(arrow_type) or types.is_dictionary(arrow_type) or is_text(arrow_type):
        return "categorical"
    if types.is_timestamp(arrow_type) or types.is_date(arrow_type):
        return "time"
    return str(arrow_type)


def is_text(arrow_type: Any) -> bool:
    """Whether an Arrow type is one of the string types."""
    types = pa.types
    view = getattr(types, "is_string_view", None)  # newer than the oldest pyarrow supported
    return bool(types.is_string(arrow_type) or types.is_large_string(arrow_type) or (view and view(arrow_type)))


def _guess_label(types: dict[str, Any]) -> str | None:
    found = [
        name
        for name, of in types.items()
        if name.casefold() in LABEL_NAMES and (pa.types.is_boolean(of) or column_kind(of) in ("numerical", "null"))
    ]
    return _only(found, "label must be named if several columns may be it")


def _only(candidates: list[str], rule: str) -> str | None:
    """The only candidate, None if there is none; several are an error."""
    if len(candidates) > 1:
        raise ValueError(f"{rule}, got {', '.join(candidates)}")
    return candidates[0] if candidates else None


def _refuse_unusable(kinds: dict[str, str]) -> None:
    usable = ("numerical", "categorical", "time", "null")
    unusable = [f"{name!r} ({kind})" for name, kind in kinds.items() if kind not in usable]
    if unusable:
        raise TypeError(
            f"a column must hold numbers, categories or timestamps, got {', '.join(unusable)}; "
            "name it as numerical or categorical after a cast, or exclude it"
        )
