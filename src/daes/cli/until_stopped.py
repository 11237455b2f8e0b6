"""The regular end of a server: Ctrl-C or SIGTERM."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def until_stopped() -> Iterator[None]:
    """Run a block that Ctrl-C and SIGTERM end without an error."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, before)
