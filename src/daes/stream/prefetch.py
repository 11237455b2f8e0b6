"""Reading ahead in a thread, so that the next batches are ready when the model needs them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import SimpleQueue
from threading import Event, Semaphore, Thread, current_thread
from typing import Any, TypeVar

from daes.stream.batch import Batch
from daes.stream.cursor import Position
from daes.stream.schema import Schema
from daes.stream.source import Source

_T = TypeVar("_T")


class Prefetch(Source):
    """A source that a thread reads ahead; otherwise the same source.

    Args:
        source: any source; do not use it otherwise while it is read through this one.
        depth: how many batches may wait.

    `position()` is the position after the last batch taken from here, not after what the thread has read. An error of
    the source is raised where its batch would have come. The thread ends with the iterator: at its end, when it is
    closed, or when a loop over it is left.

    >>> import pyarrow as pa
    >>> from daes.stream.source import TableSource
    >>> source = Prefetch(TableSource(pa.table({"price": [1.0, 2.0, 3.0]})), depth=2)
    >>> tables = source.iter_tables(None, batch_size=1)
    >>> next(tables).to_pydict(), source.position()["row"]
    ({'price': [1.0]}, 1)
    >>> tables.close()
    """

    def __init__(self, source: Source, depth: int = 4) -> None:
        if not isinstance(depth, int) or depth < 1:
            raise ValueError(f"depth must be a positive integer, got {depth!r}")
        self.source = source
        self.depth = depth
        self._position = source.position()
        self._stop: Callable[[], None] = lambda: None

    @property
    def num_rows(self) -> int | None:
        return self.source.num_rows

    @property
    def arrow_schema(self) -> Any:
        return self.source.arrow_schema

    def position(self) -> Position:
        return dict(self._position)

    def seek(self, position: Mapping[str, int | str]) -> None:
        """Go to a result of `position()`; an iterator in progress ends."""
        self._stop()
        self.source.seek(position)
        self._position = self.source.position()

    def iter_batches(self, schema: Schema, batch_size: int) -> Iterator[Batch]:
        return self._start(lambda: self.source.iter_batches(schema, batch_size))

    def iter_tables(self, columns: Sequence[str] | None, batch_size: int) -> Iterator[Any]:
        return self._start(lambda: self.source.iter_tables(columns, batch_size))

    def _start(self, make: Callable[[], Iterator[_T]]) -> Iterator[_T]:
        self._stop()
        if self.source.position() != self._position:
            self.source.seek(self._position)
        return self._generate(make())

    def _generate(self, items: Iterator[_T]) -> Iterator[_T]:
        ready: SimpleQueue[tuple[_T, Position] | BaseException | None] = SimpleQueue()
        space = Semaphore(self.depth)
        stopped = Event()

        def fill() -> None:
            try:
                for item in items:
                    position = self.source.position()
                    space.acquire()
                    if stopped.is_set():
                        break
                    ready.put((item, position))
                ready.put(None)
            except BaseException as error:
                ready.put(error)
            finally:
                if hasattr(items, "close"):
                    items.close()

        thread = Thread(target=fill, name="daes-prefetch", daemon=True)

        def stop() -> None:
            stopped.set()
            space.release()
            ready.put(None)
            if thread is not current_thread():  # as when the garbage collector runs there and closes the iterator
                thread.join()

        self._stop = stop
        thread.start()
        taken, at_once = 0, max(1, self.depth // 2)
        try:
            while True:
                found = ready.get()
                if stopped.is_set():
                    raise RuntimeError("this iterator has ended: its source was iterated again or moved by seek")
                if found is None:
                    return
                if isinstance(found, BaseException):
                    raise found
                taken += 1
                if taken == at_once:  # refill several at a time: every thread switch costs
                    space.release(taken)
                    taken = 0
                item, self._position = found
                yield item
        finally:
            stop()
