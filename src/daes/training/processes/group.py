"""The processes that train one model: which of them this one is, and what they tell each other."""

import os
import pickle
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from daes.embedding.processes import ProcessesDisagreeError, num_processes
from daes.training.processes.memory import SharedMemory

TIMEOUT = 600.0
"""Seconds after which a process that does not answer ends the run."""


class LostProcessError(RuntimeError):
    """Another process has ended, or does not answer."""


class OtherProcessError(RuntimeError):
    """Another process has failed and reports the reason."""


class Processes:
    """The processes of the default group of `torch.distributed`; without a group, this process alone.

    What they tell each other passes through the host's memory but for `add`, which leaves tensors where they are. On
    one machine it passes through memory alone (`SharedMemory`): messages of gloo take longer than a small step. If a
    process is gone or does not answer in time, telling is a `LostProcessError`.

    >>> alone = Processes()
    >>> alone.rank, alone.count, alone.first, alone.gather("here")
    (0, 1, True, ['here'])
    """

    def __init__(self) -> None:
        self.count = num_processes()
        """How many there are."""
        self.rank = dist.get_rank() if self.count > 1 else 0
        """The number of this one, from 0."""

    @cached_property
    def memory(self) -> SharedMemory | None:
        """What processes of one machine share; None if they are on several, or alone. First used by all at once."""
        if self.count == 1:
            return None
        with self.telling():
            gloo = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
            timeout = gloo.options._timeout.total_seconds()
            return SharedMemory.open(self.rank, self.count, self._gather_by_messages, timeout)

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and reports."""
        return self.rank == 0

    def device(self, name: str) -> str:
        """The device of this process: with "cuda", each of a machine's processes has a device of its own."""
        if self.count == 1 or name != "cuda":
            return name
        local, there = int(os.environ.get("LOCAL_RANK", self.rank)), torch.cuda.device_count()
        if local >= there:
            raise ValueError(f"every process needs a CUDA device of its own; process {self.rank} finds {there} of them")
        return f"cuda:{local}"

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, by rank."""
        if self.count == 1:
            return [value]
        return self._gather(value, self.gather_rows)

    def _gather_by_messages(self, value: Any) -> list[Any]:
        def rows(own: Tensor, counts: Sequence[int]) -> Tensor:
            return self._swap_by_messages(torch.cat([own] * self.count), [len(own)] * self.count, counts)

        return self._gather(value, rows)

    def _gather(self, value: Any, rows: Callable[[Tensor, Sequence[int]], Tensor]) -> list[Any]:
        written = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        sizes = rows(torch.tensor([len(written)]), [1] * self.count).tolist()
        return [pickle.loads(one.numpy().data) for one in torch.split(rows(written, sizes), sizes)]

    def meet(self, place: str, row: int, *numbers: float) -> Tensor:
        """The numbers of every process, (count, numbers); an error if they are not all at the same place of the stream.

        There may be one number, and one for each process.

        Called before rows or gradients are exchanged: processes whose data are not of the same length would otherwise
        take one for the other.
        """
        rest = [0.0] * (1 + self.count - len(numbers))  # of one size, wherever a process may be
        own = torch.tensor([[_PLACES.index(place), row, *numbers, *rest]], dtype=torch.float64)
        everyone = self.gather_rows(own, [1] * self.count)
        if not (everyone[:, :2] == everyone[0, :2]).all():
            rows = ", ".join(f"{int(row):,}" for row in everyone[:, 1])
            raise ProcessesDisagreeError(
                f"the processes are at different rows ({rows}): they do not read the same data"
            )
        return everyone[:, 2 : 2 + len(numbers)]

    def wait(self) -> None:
        """Wait until all processes have come here, if they share memory: what they have written into it is there."""
        if self.memory is not None:
            with self.telling():
                self.memory.meet()

    def add(self, tensor: Tensor) -> None:
        """Replace the tensor by the sum of those of all processes, the same bits in each."""
        if self.count > 1:
            with self.telling():
                dist.all_reduce(tensor)

    def gather_rows(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """The rows of all processes, (counts[0] + counts[1] + …, …); this one gives (counts[rank], …)."""
        return rows if self.count == 1 else torch.cat(list(self.gather_parts(rows, counts)))

    def gather_parts(self, rows: Tensor, counts: Sequence[int]) -> Sequence[Tensor]:
        """The same, process by process, to be read before the next but one is told."""
        if self.memory is None:
            return self.swap_rows(torch.cat([rows] * self.count), [len(rows)] * self.count, counts)
        with self.telling():
            return self.memory.gather(rows, counts)

    def swap_rows(self, rows: Tensor, to: Sequence[int], of: Sequence[int]) -> Sequence[Tensor]:
        """Give `to[0]` rows to process 0, the next `to[1]` to process 1, …; return the `of[r]` rows that each gave.

        They are to be read before the next but one is told.
        """
        if self.count == 1:
            return [rows]
        if self.memory is None:
            return torch.split(self._swap_by_messages(rows, to, of), list(of))
        with self.telling():
            return self.memory.swap(rows, to, of)

    def room(self, count: int, like: Tensor) -> Tensor:
        """Memory for a vector of so many numbers, which is told next."""
        return like.new_empty(count) if self.memory is None else self.memory.room(count, like)

    def _swap_by_messages(self, rows: Tensor, to: Sequence[int], of: Sequence[int]) -> Tensor:
        """Each pair of processes exchanges a message.

        gloo's own way to gather and to add is a ring: N − 1 messages one after the other.
        """
        found = rows.new_empty(sum(of), *rows.shape[1:])
        with self.telling():
            dist.all_to_all_single(found, rows, list(of), list(to))
        return found

    def send(self, rows: Tensor, to: int) -> None:
        """Give rows, on the host, to another process, which must `receive` them."""
        with self.telling():
            dist.send(rows.contiguous(), to)

    def receive(self, rows: Tensor, of: int) -> None:
        """Replace rows, on the host, by those that another process sends."""
        with self.telling():
            dist.recv(rows, of)

    def compare(self, described: Mapping[str, Any]) -> None:
        """Raise an error that names the first difference if the processes were started with different values."""
        everyone = self.gather(dict(described))
        for number, other in enumerate(everyone):
            if difference := first_difference(everyone[0], other):
                name, here, there = difference
                raise ProcessesDisagreeError(
                    f"all processes need the same data and options; {name} is {_shown(here)} in process 0 and "
                    f"{_shown(there)} in process {number}"
                )

    @contextmanager
    def together(self) -> Iterator[None]:
        """A context in which an error of one process is raised in all of them. No communication within it."""
        if self.count == 1:
            yield
            return
        error: Exception | None = None
        try:
            yield
        except Exception as raised:
            error = raised
        failed = [rank for rank, bad in enumerate(self.gather(error is not None)) if bad]
        if error is not None and self.rank == failed[0]:
            raise error
        if failed:
            raise OtherProcessError(f"process {failed[0]} has failed, and says why") from error

    @contextmanager
    def telling(self) -> Iterator[None]:
        """A context in which an error of `torch.distributed` is a `LostProcessError`."""
        try:
            yield
        except ProcessesDisagreeError:
            raise
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise LostProcessError(
                f"process {self.rank} of {self.count} has lost another one, which has ended or does not answer; "
                f"resuming the run continues from its last checkpoint ({reason[:200]})"
            ) from error


_PLACES = ("step", "exchange", "end")


@contextmanager
def process_group(timeout: float = TIMEOUT) -> Iterator[Processes]:
    """The processes that `torchrun` has started: a group of `torch.distributed` from here to the end.

    Without torchrun, or with one process, it is this process alone. A group that is there already is taken as it is.

    Args:
        timeout: seconds after which a process that does not answer is an error.
    """
    if not timeout > 0:
        raise ValueError(f"timeout must be positive, got {timeout}")
    started = num_processes() == 1 and int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ
    if started:
        if not dist.is_available():
            raise OtherProcessError("this build of torch has no torch.distributed, which several processes need")
        from torch.distributed.distributed_c10d import PrefixStore  # not in every build of torch
        from torch.distributed.rendezvous import rendezvous

        # Rows and numbers go over the host's network; gradients on CUDA devices over NCCL.
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
        if backend != "gloo":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        longest = timedelta(seconds=timeout)
        store, rank, world = next(rendezvous("env://", timeout=longest))
        # After a restart by torchrun the store may still have the addresses of the processes before.
        attempt = PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        dist.init_process_group(backend, store=attempt, rank=rank, world_size=world, timeout=longest)
    try:
        yield Processes()
    finally:
        if started:
            dist.destroy_process_group()


def first_difference(
    left: Any, right: Any, name: str = "", *, ignore: Collection[str] = ()
) -> tuple[str, Any, Any] | None:
    """The dotted name of the first entry in which nested dicts differ, and its two values; None if there is none.

    >>> first_difference({"seed": 0, "model": {"dim": 4}}, {"seed": 0, "model": {"dim": 8}})
    ('model.dim', 4, 8)
    """
    if not (isinstance(left, Mapping) and isinstance(right, Mapping)):
        return None if left == right else (name, left, right)
    for key in dict.fromkeys([*left, *right]):
        inner = f"{name}.{key}" if name else str(key)
        if inner not in ignore and (found := first_difference(left.get(key), right.get(key), inner, ignore=ignore)):
            return found
    return None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
