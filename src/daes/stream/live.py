"""Endless sources: what files that keep arriving and message brokers have in common."""

from daes.stream.cursor import CursorSource, Position

MAX_WAIT = 60.0


class LiveSource(CursorSource):
    """A source whose rows keep coming: an iterator over it ends only at `stop_row`.

    A batch is handed out when it is full, or `max_wait` seconds after its first row arrived. While no rows arrive, an
    empty batch is handed out about every second, so that the caller can do other work, such as writing a checkpoint.

    Args:
        max_wait: seconds that a row waits at most for its batch to fill.
        start: see `CursorSource`.
    """

    is_live = True
    _rows_at_once = 0  # one batch at a time: no row is held back for later batches

    def __init__(self, *, max_wait: float, start: Position) -> None:
        if not 0 < max_wait <= MAX_WAIT:
            raise ValueError(f"max_wait must be positive and at most {MAX_WAIT:g} seconds, got {max_wait:g}")
        self.max_wait = max_wait
        super().__init__(start=start)
