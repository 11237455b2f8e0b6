"""A second thread for large batches on the CPU, where torch has one."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import local
from typing import Any

import torch

MANY_ROWS = 2048
"""From this many rows on, a second thread does a part of learning."""

_pools: dict[int, ThreadPoolExecutor] = {}
_thread = local()


def submit(rows: int, work: Callable[..., Any], *arguments: Any, **options: Any) -> Future[Any] | None:
    """Do work on a batch of so many rows in the second thread, if that pays; otherwise at once, and return None.

    Torch may have threads of its own for matrix products, which is better with many cores. The second thread does its
    own parts at once: it would wait for itself.
    """
    if rows < MANY_ROWS or torch.get_num_threads() > 1 or getattr(_thread, "is_second", False):
        work(*arguments, **options)
        return None
    if os.getpid() not in _pools:  # a thread does not outlive a fork
        _pools[os.getpid()] = ThreadPoolExecutor(1, "daes-step", _begin)
    return _pools[os.getpid()].submit(work, *arguments, **options)


def _begin() -> None:
    """What the second thread does first."""
    torch.set_num_threads(1)
    _thread.is_second = True


def map_parts(rows: int, work: Callable[..., Any], parts: Sequence[tuple[Any, ...]]) -> list[Any]:
    """What work on each part of a batch of so many rows returns, the parts after the first by `submit`."""
    found = list[Any](parts)

    def do(place: int) -> None:
        found[place] = work(*parts[place])

    waiting = [submit(rows, do, place) for place in range(1, len(parts))]
    try:
        do(0)
    finally:  # no part is at work on the batch when this returns
        wait(waiting)
    return found


def wait(work: Sequence[Future[Any] | None]) -> None:
    """Wait for what `submit` returned, and raise its errors."""
    for one in work:
        if one is not None:
            one.result()
