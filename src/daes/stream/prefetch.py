"""Reading ahead in a thread, so that the next batches are ready when the model needs them."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Condition, Thread, current_thread
from typing import Any, Generic, TypeVar

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
        channel: _Channel[tuple[_T, Position]] = _Channel(self.depth)

        def fill() -> None:
            try:
                for item in items:
                    if not channel.put((item, self.source.position())):
                        break
                channel.end()
            except BaseException as error:
                channel.end(error)
            finally:
                if hasattr(items, "close"):
                    items.close()

        thread = Thread(target=fill, name="daes-prefetch", daemon=True)

        def stop() -> None:
            channel.stop()
            if thread is not current_thread():  # as when the garbage collector runs there and closes the iterator
                thread.join()

        self._stop = stop
        thread.start()
        try:
            for item, position in channel:
                self._position = position
                yield item
        finally:
            stop()


class _Channel(Generic[_T]):
    """A bounded queue that can end: with the data, by an error, or because its consumer has stopped."""

    def __init__(self, depth: int) -> None:
        self._depth, self._refill = depth, depth - max(1, depth // 2)
        self._items: deque[_T] = deque()
        self._changed = Condition()
        self._ended = self._stopped = False
        self._error: BaseException | None = None

    def put(self, item: _T) -> bool:
        """Wait for space and put; False if the consumer has stopped."""
        with self._changed:
            if len(self._items) == self._depth:  # refill several at a time: every thread switch costs
                self._changed.wait_for(lambda: self._stopped or len(self._items) <= self._refill)
            if not self._stopped:
                self._items.append(item)
                self._changed.notify_all()
            return not self._stopped

    def end(self, error: BaseException | None = None) -> None:
        """Nothing follows what is in the queue, except the error."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    def stop(self) -> None:
        """The consumer has stopped."""
        with self._changed:
            self._stopped = True
            self._items.clear()
            self._changed.notify_all()

    def __iter__(self) -> Iterator[_T]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._ended or self._stopped)
                if self._stopped:
                    raise RuntimeError("this iterator has ended: the source was sought or iterated again since")
                if not self._items:
                    if self._error is not None:
                        raise self._error
                    return
                item = self._items.popleft()
                if len(self._items) == self._refill:
                    self._changed.notify_all()
            yield item
