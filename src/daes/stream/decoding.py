"""Messages to rows: JSON objects and Arrow IPC streams, each message checked on its own."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from daes.stream.arrow import pa, pc
from daes.stream.batch import KeyedBatch, batch_from_table, named_column
from daes.stream.category_text import category_text
from daes.stream.cursor import NUMBER_ROLES, SourceError, join_pieces
from daes.stream.hashing import hash_column
from daes.stream.json_values import (
    SCALARS,
    all_convertible,
    category_of,
    excerpt,
    key_of,
    number_of,
    one_of,
    outcome_of,
    time_of,
    weight_of,
    zero_or_one,
)
from daes.stream.schema import Schema, is_text

if TYPE_CHECKING:
    from daes.stream.messages import Message

KEY, SENT = "\x00key", "\x00sent"
"""Columns that are added to the tables: the hash of the key, and when the message was sent."""

_HALF_PAIR = re.compile(rb"\\u[dD]")
"""Half a surrogate pair, perhaps alone: JSON can hold it, text cannot."""
_NO_CONVERSION: dict[str, set[type]] = {"numerical": {float, type(None)}, "categorical": {str, type(None)}}


class Decoder:
    """Makes rows of messages.

    Args:
        roles: the columns to read, with their roles: those of a `Schema`, "outcome" for a label that means a click if
            it is missing, "key" and "sent".
        schema: the schema of the batches it makes, of which each message must have a feature; None to make Tables.
        key: the field by which labels are found; its hash is the column `KEY`.
        label_map: the text of a label to 0 or 1.

    >>> from daes.stream.messages import Message
    >>> schema = Schema("click", ("price",), ())
    >>> decoder = Decoder(schema.roles, schema=schema)
    >>> messages = [Message(0, 1, 0, b'{"click": 1, "price": 2}'), Message(0, 2, 0, b'{"click": 2, "price": 1}')]
    >>> batch, found = decoder.decode(messages)
    >>> batch.numerical.tolist(), found
    ([[2.0]], [1, "label column 'click' must hold 0 and 1 only, got 2"])
    """

    def __init__(
        self,
        roles: Mapping[str, str],
        *,
        schema: Schema | None = None,
        key: str | None = None,
        label_map: Mapping[str, int] | None = None,
    ) -> None:
        self._roles = {name: "mapped" if role == "label" and label_map else role for name, role in roles.items()}
        self._schema, self._key, self._label_map = schema, key, label_map or {}
        names = () if schema is None else (*schema.numerical, *schema.categorical)
        self._features = frozenset(names)
        self._no_features = f"it has none of the columns {', '.join(names[:5])}"
        text, integers = ("categorical", "mapped", "key"), ("time", "sent")
        kinds = dict.fromkeys(text, pa.string()) | dict.fromkeys(integers, pa.int64())
        self._types = {name: kinds.get(role, pa.float64()) for name, role in self._roles.items()}
        self._rules = {name: self._rule(name, role) for name, role in self._roles.items() if role != "sent"}

    def decode(self, messages: Sequence["Message"]) -> tuple[Any | None, list[int | str]]:
        """All rows as one batch or Table (None if there are none); of each message the number of rows or its error."""
        found: list[int | str] = []
        pieces: list[Any] = []
        for arrow, run in groupby(messages, lambda message: is_arrow(message.data)):
            made, outcomes = (self._from_arrow if arrow else self._from_objects)(list(run))
            found += outcomes
            pieces += made
        return join_pieces(pieces), found

    def _from_objects(self, messages: list["Message"]) -> tuple[list[Any], list[int | str]]:
        """`decode` of messages that are JSON objects."""
        parsed = [parse_object(message.data) for message in messages]
        check = any(_HALF_PAIR.search(message.data) for message in messages)
        bad = {place: row for place, row in enumerate(parsed) if isinstance(row, str)}
        rows: list[dict[str, Any]] = [{} if isinstance(row, str) else row for row in parsed]
        columns: dict[str, list[Any]] = {}
        for name in self._roles:
            if name == SENT:
                columns[name] = [message.sent for message in messages]
            else:
                field = str(self._key) if name == KEY else name
                columns[name] = self._convert(name, [row.get(field) for row in rows], bad, check)
        if self._features:
            lacking = [place for place, row in enumerate(rows) if self._features.isdisjoint(row)]
            bad = {**dict.fromkeys(lacking, self._no_features), **bad}
        found: list[int | str] = [bad.get(place, 1) for place in range(len(rows))]
        good = [place for place, outcome in enumerate(found) if outcome == 1]
        if not good:
            return [], found
        if bad:
            columns = {name: [values[place] for place in good] for name, values in columns.items()}
        arrays = {name: pa.array(values, self._types[name]) for name, values in columns.items()}
        if KEY in arrays:
            arrays[KEY] = pa.array(hash_column(category_text(arrays[KEY])))
        return [self._finish(pa.table(arrays))], found

    def _finish(self, table: Any) -> Any:
        """The rows of a table as a batch, if there is a schema."""
        if self._schema is None:
            return table
        batch = batch_from_table(table, self._schema, label_map=self._label_map)
        if self._key is None:
            return batch
        key, sent = (np.asarray(table.column(name), dtype=np.int64) for name in (KEY, SENT))
        return KeyedBatch(**batch.arrays(), key=key, sent=sent)

    def _convert(self, name: str, values: list[Any], bad: dict[int, str], check: bool) -> list[Any]:
        """The values in the column's type; adds to `bad` why others are refused, by their place.

        `check` is whether a text may be refused.
        """
        if not check and set(map(type, values)) <= _NO_CONVERSION.get(self._roles[name], set()):
            return values
        convert, rule = self._rules[name]
        converted = []
        for place, value in enumerate(values):
            try:
                converted.append(convert(value))
            except (ValueError, OverflowError):  # the latter for an integer beyond the range of floats
                bad.setdefault(place, f"{rule}, got {excerpt(value)}")
                converted.append(None)
        return converted

    def _rule(self, name: str, role: str) -> tuple[Callable[[Any], Any], str]:
        """A function that converts a value of the column or raises ValueError or OverflowError, and what it expects."""
        labels = " or ".join(map(repr, self._label_map))
        known = {*self._label_map, *category_text(pa.array(list(self._label_map), pa.string())).to_pylist()}
        return {
            "numerical": (number_of, f"column {name!r} must hold numbers"),
            "categorical": (category_of, f"column {name!r} must hold categories"),
            "label": (zero_or_one, f"label column {name!r} must hold 0 and 1 only"),
            "mapped": (one_of(known), f"label column {name!r} must hold {labels}"),
            "outcome": (outcome_of, f"label {name!r} must be 0 or 1"),
            "weight": (weight_of, f"weight column {name!r} must hold finite numbers ≥ 0"),
            "time": (time_of, f"time column {name!r} must hold timestamps or integers"),
            "key": (key_of, f"the key {self._key!r} must be text or a number"),
        }[role]

    def _from_arrow(self, messages: list["Message"]) -> tuple[list[Any], list[int | str]]:
        read = [_read_arrow(message.data) for message in messages]
        tables = [table for table in read if not isinstance(table, str)]
        if len(tables) == len(read) > 1 and all(table.schema.equals(tables[0].schema) for table in tables):
            sent = np.repeat([message.sent for message in messages], [table.num_rows for table in tables])
            whole = self._from_table(pa.concat_tables(tables).combine_chunks(), sent)
            if not isinstance(whole, str):
                return [whole], [table.num_rows for table in tables]
        # Something is wrong with one of them, or they differ: look at each on its own.
        made = [
            table if isinstance(table, str) else self._from_table(table, np.full(table.num_rows, message.sent))
            for table, message in zip(read, messages, strict=True)
        ]
        good = [rows for rows in made if not isinstance(rows, str)]
        return good, [rows if isinstance(rows, str) else len(rows) for rows in made]

    def _from_table(self, table: Any, sent: NDArray[np.int64]) -> Any:
        """The rows of a message's table; or what is wrong with it."""
        if self._features and self._features.isdisjoint(table.column_names):
            return self._no_features
        try:
            columns = {}
            for name, role in self._roles.items():
                if name == SENT:
                    columns[name] = pa.array(sent, pa.int64())
                elif name == KEY:
                    keys = named_column(table, str(self._key))
                    if keys.null_count:
                        return f"the key {self._key!r} must have a value"
                    columns[name] = pa.array(hash_column(category_text(keys)))
                elif role == "outcome":
                    columns[name] = self._outcomes(table, name)
                elif name not in table.column_names and role in ("numerical", "categorical"):
                    columns[name] = pa.nulls(table.num_rows, self._types[name])
                else:
                    columns[name] = self._cast(named_column(table, name), name)
            return self._finish(pa.table(columns))
        except (ValueError, TypeError, pa.ArrowException) as error:
            return str(error)

    def _outcomes(self, table: Any, name: str) -> Any:
        """The labels of messages; one without a label means a click."""
        if name not in table.column_names:
            return pa.array(np.ones(table.num_rows))
        column = pc.fill_null(table.column(name).cast(pa.float64()), 1.0)
        values = np.asarray(column)
        if not np.isin(values, (0, 1)).all():
            raise ValueError(f"label {name!r} must be 0 or 1, got {values[~np.isin(values, (0, 1))][0]:g}")
        return column

    def _cast(self, column: Any, name: str) -> Any:
        role, kind = self._roles[name], self._types[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if role in ("categorical", "mapped"):
            return category_text(column).cast(kind)
        if role in ("numerical", "label", "weight") and is_text(column.type):
            raise TypeError(f"column {name!r} must hold numbers; it is of type {column.type}")
        if role == "time" and not pa.types.is_integer(column.type):
            column = column.cast(pa.timestamp("ns"))
        return column.cast(kind, safe=role not in NUMBER_ROLES)  # large integers are rounded, as in files


def is_arrow(data: bytes) -> bool:
    """Whether a message is an Arrow IPC stream, by its first bytes."""
    return data[:4] == b"\xff\xff\xff\xff"


def _read_arrow(data: bytes) -> Any:
    """The Table of a message, or what is wrong with it."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            table = reader.read_all()
        table.validate(full=True)  # offsets within the message, valid Unicode
        table.column_names  # noqa: B018 (decodes them)
        return table
    except (pa.ArrowException, OSError, ValueError) as error:
        return f"it is not an Arrow IPC stream: {error}"


def parse_object(data: bytes) -> dict[str, Any] | str:
    """The JSON object of a message, or what is wrong with it.

    >>> parse_object(b'{"price": 1}'), parse_object(b"[1]"), parse_object(b"price=1")
    ({'price': 1}, 'it must be a JSON object, got a list', 'it is not JSON: Expecting value at character 0')
    """
    try:
        found = json.loads(data)
    except json.JSONDecodeError as error:
        return f"it is not JSON: {error.msg} at character {error.pos}"
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {error}"
    return found if isinstance(found, dict) else f"it must be a JSON object, got a {type(found).__name__}"


def infer_types(messages: Sequence["Message"], name: str) -> Any:
    """The columns of some messages as a pyarrow Schema; messages that cannot be read are skipped."""
    columns: dict[str, list[Any]] = {}
    wrong: list[str] = []
    for message in messages:
        read = _read_arrow(message.data) if is_arrow(message.data) else parse_object(message.data)
        if isinstance(read, str):
            wrong.append(read)
        elif isinstance(read, pa.Table):
            return read.schema
        else:
            for column, value in read.items():
                columns.setdefault(column, []).append(value)
    if len(wrong) == len(messages):
        raise SourceError(
            f"none of the first {len(messages)} messages of {name} can be read; of the first one, {wrong[0]}"
        )
    return pa.schema([(column, _inferred(values)) for column, values in columns.items()])


def _inferred(values: list[Any]) -> Any:
    kinds = {type(value) for value in values} - {type(None)}
    if not kinds:
        return pa.null()
    if kinds == {bool}:
        return pa.bool_()
    if kinds <= {int, float}:
        return pa.float64() if float in kinds or not all_convertible(values, number_of) else pa.int64()
    if kinds <= set(SCALARS):
        texts = [value for value in values if value is not None]
        moments = kinds == {str} and all(":" in text for text in texts) and all_convertible(texts, time_of)
        return pa.timestamp("ns") if moments else pa.string()
    return pa.struct([]) if dict in kinds else pa.list_(pa.null())
