"""Ending a run by a signal: the first Ctrl-C or SIGTERM ends it after the current batch, with a checkpoint."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class TrainingStopped(KeyboardInterrupt):
    """Training was ended by a signal, between two batches.

    Args:
        number: the number of the signal.
        rows: number of rows learned from.
        saved: whether they are in a checkpoint.
    """

    def __init__(self, number: int, rows: int, saved: bool) -> None:
        kept = "; a checkpoint has all of it" if saved else ""
        super().__init__(f"stopped by {signal.Signals(number).name} after {rows:,} rows{kept}")
        self.exit_code = 128 + number
        """The exit code of a process that ends for this reason: 130 for Ctrl-C, 143 for SIGTERM."""


@contextmanager
def on_stop_signal(stop: Callable[[int], None]) -> Iterator[None]:
    """Within it, the first Ctrl-C or SIGTERM calls `stop` with its number, and a second one interrupts at once.

    Only the main thread of a process receives signals: in other threads this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received = False

    def receive(number: int, frame: FrameType | None) -> None:
        nonlocal received
        if received:
            raise KeyboardInterrupt
        received = True
        stop(number)

    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            # None stands for a handler that was not installed from Python and cannot be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
