"""The processes that train one model: the rank of this one, and communication with the others."""

import os
import pickle
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from daes.embedding.processes import ProcessesDisagreeError, num_processes
from daes.training.processes.memory import FURTHER, SharedMemory

TIMEOUT = 600.0
"""Seconds after which a process that does not answer ends the run."""


class LostProcessError(RuntimeError):
    """Another process has ended, or does not answer."""


class OtherProcessError(RuntimeError):
    """Another process has failed; it reports the reason."""


class Processes:
    """The processes of the default group of `torch.distributed`; without a group, this process alone.

    They communicate through the host's memory, except for `add`, which leaves tensors on their device. On one machine
    they use shared memory (`SharedMemory`), since messages of gloo take longer than a small step. If a process is gone
    or does not answer in time, communication raises a `LostProcessError`.

    >>> alone = Processes()
    >>> alone.rank, alone.count, alone.first, alone.gather("here")
    (0, 1, True, ['here'])
    """

    def __init__(self) -> None:
        self.count = num_processes()
        """The number of processes."""
        self.rank = dist.get_rank() if self.count > 1 else 0
        """The number of this process, from 0."""

    @cached_property
    def memory(self) -> SharedMemory | None:
        """The memory that processes of one machine share, else None; all processes must first use it together."""
        if self.count == 1:
            return None
        self.memory = None  # to communicate by messages until it is open
        with self.communicating():
            gloo = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
            timeout = gloo.options._timeout.total_seconds()
            return SharedMemory.open(self.rank, self.count, self.gather, timeout)

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and reports."""
        return self.rank == 0

    def device(self, name: str) -> str:
        """The device of this process: with "cuda", each process of a machine has a device of its own."""
        if self.count == 1 or not name.startswith("cuda"):
            return name
        if name != "cuda":
            if int(os.environ.get("LOCAL_WORLD_SIZE", self.count)) > 1:
                raise ValueError(f"every process needs a CUDA device of its own: device must be cuda, got {name}")
            return name
        local, there = int(os.environ.get("LOCAL_RANK", self.rank)), torch.cuda.device_count()
        if local >= there:
            raise ValueError(f"every process needs a CUDA device of its own; process {self.rank} finds {there} of them")
        return f"cuda:{local}"

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, by rank."""
        if self.count == 1:
            return [value]
        written = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        sizes = [int(one) for one in self.gather_rows(torch.tensor([len(written)]), [1] * self.count)]
        return [pickle.loads(one.numpy().data) for one in self.gather_rows(written, sizes)]

    def gather_numbers(self, place: str, row: int, *numbers: float) -> NDArray[np.float64]:
        """The numbers of all processes, (count, numbers); an error unless all are at the same place of the same row.

        Called before rows or gradients are exchanged: processes whose data have different lengths would otherwise
        confuse the two.

        Args:
            place: what follows: "step", "norm", "exchange" or "end".
            row: the row of the stream.
            numbers: up to 2 + `count` of them.
        """
        own = np.zeros(FURTHER + self.count)  # the same size at every place
        own[: 2 + len(numbers)] = _PLACES.index(place), row, *numbers
        if self.memory is None:
            everyone = torch.cat(list(self.gather_rows(torch.from_numpy(own[None]), [1] * self.count))).numpy()
        else:
            with self.communicating():
                everyone = self.memory.gather_numbers(own)
        if (everyone[:, :2] != everyone[0, :2]).any():
            rows = ", ".join(f"{int(row):,}" for row in everyone[:, 1])
            raise ProcessesDisagreeError(
                f"the processes are at different rows ({rows}): they do not read the same data"
            )
        return everyone[:, 2 : 2 + len(numbers)]

    def barrier(self) -> None:
        """If the processes share memory, wait until all are here and have written to it."""
        if self.memory is not None:
            with self.communicating():
                self.memory.barrier()

    def add(self, tensor: Tensor) -> None:
        """Replace the tensor by the sum over all processes, with the same bits in each."""
        if self.count > 1:
            with self.communicating():
                dist.all_reduce(tensor)

    def gather_rows(self, rows: Tensor, counts: Sequence[int]) -> Sequence[Tensor]:
        """The rows of all processes, `counts[r]` of process r; valid until the next message."""
        if self.memory is None:
            return self.swap_rows(torch.cat([rows] * self.count), [len(rows)] * self.count, counts)
        with self.communicating():
            return self.memory.gather(rows, counts)

    def swap_rows(self, rows: Tensor, to: Sequence[int], of: Sequence[int]) -> Sequence[Tensor]:
        """Send the first `to[0]` rows to process 0, the next `to[1]` to process 1, …; returns the `of[r]` rows of each.

        They are valid until the next message.
        """
        if self.count == 1:
            return [rows]
        with self.communicating():
            if self.memory is not None:
                return self.memory.swap(rows, to, of)
            found = rows.new_empty(sum(of), *rows.shape[1:])
            # Each pair of processes exchanges a message. gloo's gather and sum would be a ring of N − 1 messages.
            dist.all_to_all_single(found, rows, list(of), list(to))
            return torch.split(found, list(of))

    def send_buffer(self, count: int, like: Tensor) -> Tensor:
        """A vector of `count` numbers for the next message, which is then not copied."""
        return like.new_empty(count) if self.memory is None else self.memory.send_buffer(count, like)

    def send(self, rows: Tensor, to: int) -> None:
        """Send rows, on the host, to another process, which must `receive` them."""
        with self.communicating():
            dist.send(rows.contiguous(), to)

    def receive(self, rows: Tensor, of: int) -> None:
        """Replace rows, on the host, by those that another process sends."""
        with self.communicating():
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
        """Within it, an error of one process raises an error in all of them. It must not contain communication."""
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
            raise OtherProcessError(f"process {failed[0]} has failed: its output says why") from error

    @contextmanager
    def communicating(self) -> Iterator[None]:
        """Within it, an error of `torch.distributed` becomes a `LostProcessError`."""
        try:
            yield
        except (ProcessesDisagreeError, LostProcessError):
            raise
        except RuntimeError as error:
            raise LostProcessError(
                f"process {self.rank} of {self.count} has lost another one, which has ended or does not answer; "
                f"resuming the run continues from its last checkpoint ({_reason(error)})"
            ) from error


_PLACES = ("step", "norm", "exchange", "end")


@contextmanager
def process_group(timeout: float = TIMEOUT) -> Iterator[Processes]:
    """Within it, the processes that `torchrun` started are a group of `torch.distributed`.

    Without torchrun, or with one process, it is this process alone. An existing group is used.

    Args:
        timeout: seconds after which a process that does not answer is an error.
    """
    if not timeout > 0:
        raise ValueError(f"timeout must be positive, got {timeout}")
    started = num_processes() == 1 and _from_environment("WORLD_SIZE", 1) > 1
    if started:
        _from_environment("RANK")
        if not dist.is_available():
            raise OtherProcessError("this build of torch has no torch.distributed, which several processes need")
        from torch.distributed.distributed_c10d import PrefixStore  # not in every build of torch
        from torch.distributed.rendezvous import rendezvous

        # Rows and numbers are sent by gloo, gradients on CUDA devices by NCCL.
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
        if backend != "gloo":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        longest = timedelta(seconds=timeout)
        try:
            store, rank, world = next(rendezvous("env://", timeout=longest))
            # After a restart by torchrun the store may still have the addresses of earlier processes.
            attempt = PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
            dist.init_process_group(backend, store=attempt, rank=rank, world_size=world, timeout=longest)
        except RuntimeError as error:
            raise LostProcessError(
                f"process {os.environ['RANK']} of {os.environ['WORLD_SIZE']} has not met the others within "
                f"{timeout:g} s: torchrun or one of them has ended or does not answer ({_reason(error)})"
            ) from error
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


def _reason(error: RuntimeError) -> str:
    """The beginning of an error of `torch.distributed`, in one line."""
    return " ".join(str(error).split())[:200]


def _from_environment(name: str, default: int | None = None) -> int:
    """A number that torchrun has set."""
    text = os.environ.get(name, default)
    try:
        return int(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} in the environment must be a number, as torchrun sets it for every process, got {text!r}"
        ) from None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
