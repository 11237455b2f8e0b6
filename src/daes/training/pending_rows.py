"""A queue of scored rows that are found by their keys; their features may be on disk."""

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.storage.segments import Segments
from daes.stream.batch import Batch, KeyedBatch
from daes.training.labels import Scored


@dataclass
class _Piece:
    """Some consecutive rows; `features` is a batch, or the name of a segment on disk."""

    key: NDArray[np.int64]
    sent: NDArray[np.int64]
    logits: NDArray[np.float32]
    label: NDArray[np.float32]
    features: Batch | str

    def __len__(self) -> int:
        return len(self.key)


class PendingRows:
    """A queue of scored rows; labels are assigned by key, and rows leave at the front.

    Args:
        most_in_memory: rows whose features are kept in memory, if there are `segments`.
    """

    _segment_rows = 8192
    """Smallest number of rows of a segment."""

    def __init__(self, most_in_memory: int) -> None:
        self.count = 0
        self.segments: Segments | None = None
        """Where the features of further rows go; None to keep all in memory. About 150 bytes of such a row stay in
        memory: key, time, score, label, and its entry in the index."""
        self._most = most_in_memory
        self._first = 0
        self._in_memory = 0
        self._pieces: deque[_Piece] = deque()
        self._starts: deque[int] = deque()
        self._rows_of: dict[int, int] = {}

    @property
    def spilled(self) -> int:
        """Rows whose features are on disk."""
        return self.count - self._in_memory

    def add(self, batch: KeyedBatch, logits: NDArray[np.float32]) -> int:
        """Add scored rows; returns how many have the key of a waiting row, which then can get no label any more."""
        assert batch.key is not None
        assert batch.sent is not None
        features = Batch(**{name: array for name, array in batch.arrays().items() if name not in ("key", "sent")})
        repeated = self._append(_Piece(batch.key, batch.sent, logits, np.zeros(len(batch), np.float32), features))
        if self.segments is not None and self._in_memory - self._most >= self._segment_rows:
            self._spill(self.segments)
        return repeated

    def assign(self, key: int, sent: int, label: float, window: int) -> bool | None:
        """Assign a label to its row; False if it was sent after the row's window, None if no row has the key."""
        number = self._rows_of.get(key)
        if number is None:
            return None
        place = bisect_right(self._starts, number) - 1
        piece, row = self._pieces[place], number - self._starts[place]
        if sent > int(piece.sent[row]) + window:
            return False
        piece.label[row] = label
        return True

    def sent_by(self, moment: int) -> int:
        """The number of rows before the first one that was sent later."""
        found = 0
        for piece in self._pieces:
            by_then = piece.sent <= moment
            if not by_then.all():
                return found + int(np.argmin(by_then))
            found += len(piece)
        return found

    def last_sent(self, rows: int) -> int:
        """The latest time at which one of the first rows was sent; 0 if there are none."""
        latest = 0
        for piece in self._pieces:
            if rows <= 0:
                break
            latest = max(latest, int(piece.sent[:rows].max()))
            rows -= len(piece)
        return latest

    def take(self, rows: int) -> Scored:
        """The first rows, with the labels they have."""
        first, parts, logits = self._first, [], []
        while rows:
            piece = self._loaded()
            some = min(rows, len(piece))
            assert isinstance(piece.features, Batch)
            parts.append(Batch(**piece.features[:some].arrays(), label=piece.label[:some]))
            logits.append(piece.logits[:some])
            self._remove(piece, some)
            rows -= some
        return Scored(first, Batch.concat(parts), np.concatenate(logits))

    def state_dict(self) -> dict[str, Any]:
        """The rows, and the names of the segments."""
        if self.segments is not None:
            self.segments.clean()
        pieces = [
            {**vars(piece), "features": piece.features if isinstance(piece.features, str) else piece.features.arrays()}
            for piece in self._pieces
        ]
        return {"first": self._first, "pieces": pieces}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.count = self._in_memory = 0
        self._first = state["first"]
        self._pieces, self._starts, self._rows_of = deque(), deque(), {}
        for stored in state["pieces"]:
            features = stored["features"] if isinstance(stored["features"], str) else Batch(**stored["features"])
            self._append(_Piece(**{**stored, "features": features, "label": np.array(stored["label"])}))
        if self.segments is not None:
            self.segments.recover(piece.features for piece in self._pieces if isinstance(piece.features, str))

    def _append(self, piece: _Piece) -> int:
        number = self._first + self.count
        self._pieces.append(piece)
        self._starts.append(number)
        self.count += len(piece)
        self._in_memory += len(piece) if isinstance(piece.features, Batch) else 0
        repeated = 0
        for place, key in enumerate(piece.key.tolist(), number):
            repeated += key in self._rows_of
            self._rows_of[key] = place
        return repeated

    def _spill(self, segments: Segments) -> None:
        """Write the features of the newest rows as one segment, if enough of them are in memory."""
        newest: list[_Piece] = []
        rows = 0
        for piece in islice(reversed(self._pieces), len(self._pieces) - 1):  # the first piece is needed next
            if rows >= self._segment_rows or isinstance(piece.features, str):
                break
            newest.append(piece)
            rows += len(piece)
        if rows < self._segment_rows:
            return
        newest.reverse()
        for _ in newest:
            self._pieces.pop()
            self._starts.pop()
        batch = Batch.concat([piece.features for piece in newest if isinstance(piece.features, Batch)])
        columns = {
            name: np.concatenate([vars(piece)[name] for piece in newest])
            for name in vars(newest[0])
            if name != "features"
        }
        self._starts.append(self._first + self.count - rows)
        self._pieces.append(_Piece(**columns, features=segments.write(batch.arrays())))
        self._in_memory -= rows

    def _loaded(self) -> _Piece:
        """The first piece, with its features in memory."""
        piece = self._pieces[0]
        if isinstance(piece.features, str):
            assert self.segments is not None
            name, piece.features = piece.features, Batch(**self.segments.read(piece.features))
            self.segments.drop(name)
            self._in_memory += len(piece)
        return piece

    def _remove(self, piece: _Piece, rows: int) -> None:
        for place, key in enumerate(piece.key[:rows].tolist(), self._first):
            if self._rows_of.get(key) == place:
                del self._rows_of[key]
        self._first += rows
        self.count -= rows
        self._in_memory -= rows
        if rows == len(piece):
            self._pieces.popleft()
            self._starts.popleft()
            return
        self._pieces[0] = _Piece(**{name: values[rows:] for name, values in vars(piece).items()})
        self._starts[0] += rows
