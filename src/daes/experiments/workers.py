"""Independent tasks in separate processes; one that dies does not affect the others.

`concurrent.futures` is not used because there one killed worker breaks the whole pool.
"""

import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

Task = Callable[[Any, Any, Callable[[Any], None]], Any]
"""task(shared, item, note) → result, where `note(message)` sends a message to the parent; it must be picklable."""
RunTasks = Callable[..., Iterator[tuple[Any, Any]]]
"""`run_tasks`, or something with the same arguments, such as `daes.engines.ray.RayTasks`."""


@dataclass(frozen=True)
class WorkerExit:
    """Takes the place of a result where the process ended without one; `reason` may say more than the exit code."""

    exit_code: int | None
    reason: str = ""

    def __str__(self) -> str:
        if self.reason:
            return self.reason
        if self.exit_code is not None and self.exit_code < 0:
            name = signal.Signals(-self.exit_code).name
            hint = ", as happens when memory runs out" if name == "SIGKILL" else ""
            return f"its process was ended by {name}{hint}"
        return f"its process ended with exit code {self.exit_code}"


def run_tasks(
    task: Task,
    shared: Any,
    items: Iterable[Any],
    *,
    jobs: int,
    threads: int = 1,
    on_note: Callable[[Any, Any], None] = lambda item, message: None,
    enough: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[Any, Any]]:
    """Pairs of an item and its result, in the order in which they finish.

    Args:
        task: the function to call. It must not raise: an error is a result too.
        shared: passed to every call; sent to each process once.
        items: one per call.
        jobs: number of spawned processes; with one, everything is done in this process.
        threads: torch's threads in each of several processes.
        on_note: called with an item and a message of its task.
        enough: once it returns true, no further item is started; those in progress are finished.
    """
    waiting = deque(items)
    if jobs <= 1:
        while waiting and not enough():
            item = waiting.popleft()
            yield item, task(shared, item, partial(on_note, item))
        return
    workers: list[_Worker] = []
    try:
        while waiting or any(worker.busy for worker in workers):
            if enough():
                waiting.clear()
                if not any(worker.busy for worker in workers):
                    return
            for worker in workers:
                if waiting and not worker.busy:
                    worker.begin(waiting.popleft())
            while waiting and len(workers) < jobs:
                workers.append(_Worker(task, shared, threads))
                workers[-1].begin(waiting.popleft())
            for ready in wait([worker.connection for worker in workers if worker.busy]):
                worker = next(worker for worker in workers if worker.connection is ready)
                try:
                    is_result, message = worker.connection.recv()
                except (EOFError, ConnectionResetError):
                    workers.remove(worker)
                    yield worker.item, worker.exit()
                    continue
                if is_result:
                    worker.busy = False
                    yield worker.item, message
                else:
                    on_note(worker.item, message)
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    def __init__(self, task: Task, shared: Any, threads: int) -> None:
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_work, args=(theirs, task, shared, threads), daemon=True)
        self.process.start()
        theirs.close()
        self.busy = False
        self.item: Any = None

    def begin(self, item: Any) -> None:
        self.item, self.busy = item, True
        with suppress(BrokenPipeError, ConnectionResetError):  # if the process has died, receiving will fail too
            self.connection.send(item)

    def exit(self) -> WorkerExit:
        self.process.join()
        return WorkerExit(self.process.exitcode)

    def stop(self) -> None:
        if self.busy:
            self.process.terminate()
        self.connection.close()
        self.process.join()


def _work(connection: Connection, task: Task, shared: Any, threads: int) -> None:
    import torch

    # The terminal sends an interrupt to all processes; only the parent reacts to it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    with suppress(EOFError, ConnectionError):  # the parent has ended
        while True:
            item = connection.recv()
            connection.send((True, task(shared, item, lambda message: connection.send((False, message)))))
