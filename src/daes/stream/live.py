"""Sources without an end: what files that keep arriving and message brokers have in common."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from daes.stream.arrow import pa
from daes.stream.cursor import Cursor, CursorSource, Position, Roles, join_pieces

MAX_WAIT = 60.0
_HEARTBEAT = 1.0


class LiveSource(CursorSource):
    """A source whose rows keep coming: an iterator over it ends at `stop_row` alone.

    A batch is handed out when it is full, or `max_wait` seconds after its first row came. While nothing comes, an empty
    batch is handed out about every second, so that whoever iterates can do what is due meanwhile: write a checkpoint,
    or stop.

    Args:
        max_wait: seconds that a row waits at most for its batch to be full.
        bad_rows, label_map: see `CursorSource`.
    """

    is_live = True
    _rows_at_once = 0  # one batch at a time: rows that are there are not held back for later batches

    def __init__(
        self, *, max_wait: float = 1.0, bad_rows: str = "error", label_map: Mapping[str, int] | None = None
    ) -> None:
        if not 0 < max_wait <= MAX_WAIT:
            raise ValueError(f"max_wait must be positive and at most {MAX_WAIT:g} seconds, got {max_wait:g}")
        self.max_wait = max_wait
        super().__init__(bad_rows=bad_rows, label_map=label_map)

    @property
    def lag(self) -> str:
        """How far the source is behind what is there, as text for people; empty where that is not known."""
        return ""

    def _read(self, cursor: Cursor, rows: int) -> tuple[Any | None, list[tuple[int, Position]]]:
        pieces: list[Any] = []
        places: list[tuple[int, Position]] = []
        done = 0
        deadline = time.monotonic() + min(self.max_wait, _HEARTBEAT)
        while done < rows:
            if cursor.ready():
                if not pieces:
                    deadline = time.monotonic() + self.max_wait
                places.append((done, cursor.place()))
                pieces.append(cursor.read(rows - done))
                done += len(pieces[-1])
                continue
            left = deadline - time.monotonic()
            if left <= 0:
                break
            cursor.wait(left)
        return self._join(pieces), [*places, (done, cursor.place())]

    def _join(self, pieces: list[Any]) -> Any | None:
        """What a cursor has read, as one; None if that is nothing."""
        return join_pieces(pieces)

    def _no_rows(self, columns: Sequence[str], roles: Roles) -> Any:
        kinds = {"categorical": pa.string(), "time": pa.int64()}
        return pa.table({name: pa.array([], kinds.get(roles.get(name, ""), pa.float64())) for name in columns})
