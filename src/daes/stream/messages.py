"""Rows that arrive as messages from a broker: what the clients of all brokers have in common.

A client implements `Consumer`: it reads the partitions of a topic from given offsets and commits nothing to the broker.
The offsets are the position of the source, which the checkpoint holds together with the model: after a crash the
messages since the checkpoint are read again, as if for the first time.
"""

import base64
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from daes.formatting import counted
from daes.stream.arrow import pa
from daes.stream.batch import Batch, KeyedBatch
from daes.stream.cursor import Cursor, PiecewiseCursor, Position, SourceError
from daes.stream.cursor_source import CursorSource
from daes.stream.decoding import KEY, SENT, Decoder, infer_types
from daes.stream.schema import Schema, column_kind

_log = logging.getLogger("daes.stream")
_AT_ONCE = 4096
_INFERRED_FROM = 1000
_ONE_WAIT = 0.5

Offsets = dict[int, int]
"""The offset of the next message of each partition."""


class BrokerError(SourceError):
    """A broker cannot be reached, or does not have what is asked for."""


class Message(NamedTuple):
    """One message."""

    partition: int
    offset: int
    sent: int
    """When it was sent, by the broker's clock (with Kafka the producer's); epoch nanoseconds."""
    data: bytes


@dataclass(frozen=True)
class DeadLetter:
    """A message that cannot be read, and the reason."""

    topic: str
    partition: int
    offset: int
    sent: int
    reason: str
    data: bytes

    def to_json(self) -> str:
        """One line of JSON: the payload is text if it is UTF-8, otherwise base64."""
        line: dict[str, Any] = {name: getattr(self, name) for name in ("topic", "partition", "offset", "reason")}
        line["sent"] = datetime.fromtimestamp(self.sent / 1e9, UTC).isoformat(timespec="milliseconds")
        try:
            line["payload"] = self.data.decode()
        except UnicodeDecodeError:
            line["payload_base64"] = base64.b64encode(self.data).decode()
        return json.dumps(line, ensure_ascii=False)


class Consumer(Protocol):
    """A client of a broker, connected to one topic. If the connection is lost, it waits for the broker."""

    name: str
    """The name of the topic in messages, files and reports."""

    def start(self) -> Offsets:
        """The offset of the first message to read in each partition."""

    def seek(self, offsets: Mapping[int, int]) -> None:
        """Continue from these offsets."""

    def poll(self, most: int, seconds: float) -> list[Message]:
        """Up to `most` messages, as soon as there are some; none if none arrive within `seconds`."""

    def lag(self) -> int | None:
        """How many messages follow the last one that was polled; None if the broker does not say."""

    def complete_until(self) -> int:
        """The time, in epoch nanoseconds, up to which all messages sent were polled."""

    def close(self) -> None:
        """Disconnect."""


class MessageSource(CursorSource):
    """Rows of a topic: each message is a JSON object, or an Arrow IPC stream of any number of rows.

    Columns that a message lacks are missing values. A message that cannot be read (not JSON, text where a number is
    expected, no label) is a dead letter: it is passed to `on_dead_letter` with its position and the reason, and
    skipped.

    Args:
        key: the field by which labels find their rows; batches are then `KeyedBatch` and have no label.
        max_wait: see `CursorSource`.
    """

    def __init__(self, consumer: Consumer, *, key: str | None = None, max_wait: float = 1.0) -> None:
        self.consumer = consumer
        self.key = key
        self.on_dead_letter: Callable[[DeadLetter], None] | None = None
        super().__init__(max_wait=max_wait, start={"offsets": format_offsets(consumer.start(), {}), "skip": 0})

    @cached_property
    def arrow_schema(self) -> Any:
        """The columns of the first messages; waits for them."""
        self.consumer.seek(parse_offsets(str(self._start["offsets"]))[0])
        found = self.consumer.poll(_INFERRED_FROM, _ONE_WAIT)
        if not found:
            _log.warning("there is no message in %s yet: waiting for the first one", self.consumer.name)
        while not found:
            found = self.consumer.poll(_INFERRED_FROM, _ONE_WAIT)
        while len(found) < _INFERRED_FROM and (more := self.consumer.poll(_INFERRED_FROM - len(found), _ONE_WAIT)):
            found += more
        return infer_types(found, self.consumer.name)

    @property
    def lag(self) -> str:
        """How far reading is behind, as text for people; empty if that is not known."""
        behind = self.consumer.lag()
        return "" if behind is None else f"{counted(behind, 'message')} behind"

    def iter_batches(self, schema: Schema, batch_size: int) -> Iterator[Batch]:
        """Batches of `batch_size` rows, fewer after `max_wait`, none while no rows arrive; from `position()` on."""
        return super().iter_batches(schema if self.key is None else replace(schema, label=None), batch_size)

    def _no_rows(self, columns: Sequence[str], schema: Schema | None) -> Any:
        empty = super()._no_rows(columns, schema)
        if schema is None or self.key is None:
            return empty
        return KeyedBatch(**empty.arrays(), key=np.zeros(0, np.int64), sent=np.zeros(0, np.int64))

    def close(self) -> None:
        self.consumer.close()

    def _check_place(self, position: Position) -> None:
        parse_offsets(str(position["offsets"]))

    def _check_columns(self, columns: Sequence[str]) -> None:
        """Messages need not have all columns."""

    def _cursor(self, columns: Sequence[str], schema: Schema | None, place: Position, rows_at_once: int) -> Cursor:
        if schema is None:
            kinds = {name: column_kind(self.arrow_schema.field(name).type) for name in columns}
            roles = {name: "numerical" if kind == "numerical" else "categorical" for name, kind in kinds.items()}
        else:
            roles = schema.roles if self.key is None else {**schema.roles, KEY: "key", SENT: "sent"}
        decoder = Decoder(roles, schema=schema, key=self.key, label_map=self._label_map)
        return _MessageCursor(self.consumer, decoder, str(place["offsets"]), self)


class Labels(NamedTuple):
    """Labels of rows, (B,) each: the hash of the key, the time of sending, and 0 or 1."""

    key: NDArray[np.int64]
    sent: NDArray[np.int64]
    label: NDArray[np.float32]

    def rows(self, some: NDArray[np.bool_]) -> "Labels":
        return Labels(self.key[some], self.sent[some], self.label[some])


class LabelReader:
    """The messages of a topic that say which rows were clicked.

    A message has the key and may have the label, 0 or 1; without a label it means a click. A message that cannot be
    read is a dead letter, as in a `MessageSource`. Those of one partition are in the order of their times; of several,
    one may be read long before the others.

    Args:
        key: the field of the key.
        label: the field of the label; None if messages have none.
    """

    def __init__(self, consumer: Consumer, key: str, label: str | None) -> None:
        self.name = consumer.name
        self.on_dead_letter: Callable[[DeadLetter], None] | None = None
        self._consumer = consumer
        roles = {KEY: "key", SENT: "sent", label or "\x00click": "outcome"}
        self._decoder = Decoder(roles, key=key)
        self._ahead = Labels(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
        self._cursor = self._open(format_offsets(consumer.start(), {}))

    def read(self, most: int, moment: int) -> Labels:
        """Labels that were sent no later than `moment`, of those fetched and up to `most` more; none if none is left.

        They are all that have arrived, if `complete_until` is not before that moment.
        """
        due = self._ahead.sent <= moment
        if not due.any() and self._more_by(moment):
            table = self._cursor.read(most)
            key, sent, label = (table.column(place).to_numpy() for place in range(3))
            self._ahead = Labels(
                np.concatenate([self._ahead.key, key.astype(np.int64)]),
                np.concatenate([self._ahead.sent, sent.astype(np.int64)]),
                np.concatenate([self._ahead.label, label.astype(np.float32)]),
            )
            due = self._ahead.sent <= moment
        found, self._ahead = self._ahead.rows(due), self._ahead.rows(~due)
        return found

    def wait(self, seconds: float) -> None:
        """Return as soon as there may be another label, at the latest after `seconds`."""
        self._cursor.wait(seconds)

    def complete_until(self) -> int:
        """The time, in epoch nanoseconds, up to which all labels sent were read."""
        if self._cursor.num_left() or (not len(self._ahead.key) and self._cursor.ready()):
            return 0
        fetched = self._consumer.complete_until()
        return min(fetched, int(self._ahead.sent.min()) - 1) if len(self._ahead.key) else fetched

    def _more_by(self, moment: int) -> bool:
        """Whether labels have arrived that may have been sent by then; with labels ahead it need not fetch others."""
        return (not len(self._ahead.key) or self.complete_until() < moment) and self._cursor.ready()

    def offsets(self) -> Offsets:
        """The offset of the next message of each partition."""
        return parse_offsets(str(self._cursor.place()["offsets"]))[0]

    def state_dict(self) -> dict[str, Any]:
        """The place among the messages, and the labels that were fetched but not read."""
        return {"offsets": self._cursor.place()["offsets"], "ahead": [np.array(column) for column in self._ahead]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._ahead = Labels(*state["ahead"])
        self._cursor = self._open(state["offsets"])

    def _open(self, offsets: str) -> "_MessageCursor":
        return _MessageCursor(self._consumer, self._decoder, offsets, self)


class _MessageCursor(PiecewiseCursor):
    """Messages, decoded a few thousand at a time, which makes a row cheap.

    The place is exact to the row within a message.
    """

    def __init__(
        self, consumer: Consumer, decoder: Decoder, offsets: str, owner: "MessageSource | LabelReader"
    ) -> None:
        self._consumer, self._decoder, self._owner = consumer, decoder, owner
        self._offsets, self._inside = parse_offsets(offsets)
        self._to_skip = dict(self._inside)
        consumer.seek(self._offsets)
        self._messages: list[tuple[Message, int]] = []
        """Those that are decoded and not completely handed out, last first, each with the rows it has left."""

    def wait(self, seconds: float) -> None:
        if not self.num_left():
            self._left = self._next_piece(min(seconds, _ONE_WAIT))

    def _next_piece(self, seconds: float = 0.0) -> Any | None:
        messages = self._consumer.poll(_AT_ONCE, seconds)
        if not messages:
            return None
        piece, found = self._decoder.decode(messages)
        if self._to_skip and piece is not None:
            piece, found = self._without_read(messages, piece, found)
        for message, rows in zip(messages, found, strict=True):
            if isinstance(rows, str) and self._owner.on_dead_letter is not None:
                letter = DeadLetter(self._consumer.name, *message[:3], rows, message.data)
                self._owner.on_dead_letter(letter)
        counts = [0 if isinstance(rows, str) else rows for rows in found]
        self._messages = list(zip(messages, counts, strict=True))[::-1]
        self._pass_on(0)
        return piece

    def _without_read(
        self, messages: Sequence[Message], piece: Any, found: list[int | str]
    ) -> tuple[Any, list[int | str]]:
        """Leave out the rows of each partition's first message that were read before the position."""
        keep = np.ones(len(piece), dtype=bool)
        left, row = [], 0
        for message, rows in zip(messages, found, strict=True):
            if isinstance(rows, int):
                read = min(self._to_skip.pop(message.partition, 0), rows)
                keep[row : row + read] = False
                row += rows
                rows -= read
            left.append(rows)
        return piece[keep] if isinstance(piece, Batch) else piece.filter(pa.array(keep)), left

    def _pass_on(self, rows: int) -> None:
        """Mark the next `rows` rows as handed out, and messages with no rows left as read."""
        while self._messages:
            message, count = self._messages[-1]
            if count > rows:
                if rows:
                    self._messages[-1] = (message, count - rows)
                    self._inside[message.partition] = self._inside.get(message.partition, 0) + rows
                return
            rows -= count
            self._messages.pop()
            self._offsets[message.partition] = message.offset + 1
            self._inside.pop(message.partition, None)

    def read(self, limit: int) -> Any:
        piece = super().read(limit)
        self._pass_on(len(piece))
        return piece

    def place(self) -> Position:
        return {"offsets": format_offsets(self._offsets, self._inside), "skip": 0}

    def close(self) -> None:
        self._left, self._messages = None, []


def next_offset(what: str, wanted: int, first: int, end: int) -> int:
    """Where to continue in messages from `first` to before `end`: at `wanted`, or at `first` if that is gone."""
    if wanted > end:
        raise BrokerError(f"{what} ends before message {end}, but message {wanted} is next: it was created again")
    if wanted < first:
        _log.warning("%s no longer has messages %d to %d: continuing with %d", what, wanted, first - 1, first)
    return max(wanted, first)


def format_offsets(offsets: Mapping[int, int], inside: Mapping[int, int]) -> str:
    """Offsets as text: the next message of each partition, and the number of its rows that were read.

    >>> format_offsets({0: 17, 1: 4}, {0: 3})
    '0:17+3 1:4'
    """
    return " ".join(
        f"{partition}:{offset}" + (f"+{inside[partition]}" if inside.get(partition) else "")
        for partition, offset in sorted(offsets.items())
    )


def parse_offsets(text: str) -> tuple[Offsets, Offsets]:
    """What `format_offsets` wrote.

    >>> parse_offsets("0:17+3 1:4")
    ({0: 17, 1: 4}, {0: 3})
    """
    offsets: Offsets = {}
    inside: Offsets = {}
    try:
        for part in text.split():
            partition, _, place = part.partition(":")
            offset, plus, rows = place.partition("+")
            offsets[int(partition)] = int(offset)
            if plus:
                inside[int(partition)] = int(rows)
    except ValueError:
        raise ValueError(f"offsets must look like '0:17+3 1:4', got {text!r}") from None
    return offsets, inside
