"""Memory that the processes of one machine share, for messages and for tensors that all of them write."""

import mmap
import os
import select
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daes import native
from daes.embedding.processes import ProcessesDisagreeError

_SLICE = 200
"""Milliseconds after which a waiting process checks whether the others still exist."""
_LEAST = 1 << 16
"""The smallest size of a mailbox, in bytes."""
_HEAD = 8
"""Numbers before the entries of the processes: the state of the barrier, whether a process has left, and a random mark
by which the memory is recognised."""
_ENTRY = 3
FURTHER = 4
"""An entry, and what a process tells by `gather_numbers`, have a number per process and so many further ones."""

Bytes = NDArray[np.uint8]


class SharedMemory:
    """Memory shared by the processes of one machine.

    Each process has two mailboxes that only it writes to, used in turn, so that one can be read while the other is
    written. Between writing and reading there is a `barrier`. The memory has no name in the file system: it is freed
    when the processes end, for whatever reason.

    Use `open`, which finds out whether all processes can share memory.

    Args:
        control: memory mapped by all processes: `_HEAD` numbers, then for each process and mailbox its file, its size
            and where in it the parts for the processes begin; then twice the floats of `gather_numbers`.
        pids: the processes, by rank.
        timeout: seconds to wait for another process.
    """

    def __init__(self, control: NDArray[np.int64], pids: Sequence[int], rank: int, timeout: float) -> None:
        self.pids, self.rank, self.count = list(pids), rank, len(pids)
        self._control, self._address = control, control.ctypes.data
        entries, numbers = np.split(control[_HEAD:], [2 * self.count * (self.count + _ENTRY)])
        self._entries = entries.reshape(self.count, 2, self.count + _ENTRY)
        self._numbers = numbers.view(np.float64).reshape(2, self.count, self.count + FURTHER)
        self._timeout = timeout
        self._watch = select.poll()
        self._handles = [os.pidfd_open(pid) for pid in self.pids if pid != os.getpid()]
        for handle in self._handles:
            self._watch.register(handle, select.POLLIN)
        self._files: dict[int, int] = {}
        self._mapped: dict[tuple[int, int], Bytes] = {}
        self._sizes = [[0] * self.count, [0] * self.count]
        self._turn = 0
        self._shared: tuple[int, int, list[tuple[Tensor, int, int]]] | None = None

    @classmethod
    def open(cls, rank: int, count: int, gather: Callable[[Any], list[Any]], timeout: float) -> Self | None:
        """Memory of all processes, if they are on one machine and have compiled loops; called in all of them.

        Args:
            gather: exchanges the values of all processes by other means.
        """
        here, mark = _machine(), int.from_bytes(os.urandom(7))
        size = 8 * (_HEAD + 2 * count * (2 * count + _ENTRY + FURTHER))
        file, control = -1, np.empty(0, np.uint8)
        if here is not None and rank == 0:
            with suppress(OSError):
                file, control = _new(size)
                control.view(np.int64)[2] = mark
        everyone = gather((here, os.getpid(), file, mark))
        found = None
        if here is not None and all(one[0] == here for one in everyone):
            _, pid, number, mark = everyone[0]
            with suppress(OSError, RuntimeError):  # of another user, in another namespace of processes, or no memory
                control = control if rank == 0 else _map(pid, number, size)
                if len(control) and control.view(np.int64)[2] == mark:
                    made = cls(control.view(np.int64), [one[1] for one in everyone], rank, timeout)
                    made._make_box(0, _LEAST)
                    made._make_box(1, _LEAST)
                    found = made
        if not all(gather(found is not None)):
            found = None
        ready = False
        with suppress(RuntimeError):
            ready = found is not None and found._find_boxes(0) and found._find_boxes(1)
        if not all(gather(ready)):
            found = None
        if file >= 0:
            os.close(file)
        return found

    def _make_box(self, turn: int, size: int) -> Bytes:
        if turn in self._files:
            os.close(self._files.pop(turn))  # all have read it
        self._files[turn], box = _new(size)
        self._mapped[self.rank, turn] = box
        self._entries[self.rank, turn, :2] = self._files[turn], size
        return box

    def _find_boxes(self, turn: int) -> bool:
        """Map new mailboxes of other processes; whether any process has a new one, the same answer in all of them."""
        sizes = self._entries[:, turn, 1].tolist()
        if sizes == self._sizes[turn]:
            return False
        for rank, (file, size) in enumerate(self._entries[:, turn, :2].tolist()):
            if rank != self.rank and size != self._sizes[turn][rank]:
                self._mapped[rank, turn] = _map(self.pids[rank], file, size)
        self._sizes[turn] = sizes
        return True

    def __del__(self) -> None:
        for one in (*getattr(self, "_files", {}).values(), *getattr(self, "_handles", ())):
            os.close(one)

    def barrier(self) -> None:
        """Wait until all processes have called this.

        Raises:
            RuntimeError: if one of them has ended or left, or does not call it in time.
        """
        address, library = self._address, native._library
        number = library.daes_arrive(address, self.count)
        started = time.monotonic()
        while not library.daes_await(address, number, _SLICE):
            if self._watch.poll(0) or self._control[1]:
                if library.daes_await(address, number, 0):  # it arrived before it ended
                    return
                raise RuntimeError("a process has ended")
            if time.monotonic() - started > self._timeout:
                raise RuntimeError(f"timed out after {self._timeout:g} s")

    def leave(self) -> None:
        """Let processes that wait for this one know that it does not take part any more."""
        self._control[1] = 1

    def send_buffer(self, count: int, like: Tensor) -> Tensor:
        """A vector of `count` numbers in the mailbox, for the next message: it is then not copied."""
        size = count * like.element_size()
        box = self._mapped[self.rank, self._turn]
        if len(box) < size:
            box = self._make_box(self._turn, 2 * size)
        return torch.from_numpy(box[:size]).view(like.dtype)

    def gather_numbers(self, own: NDArray[np.float64]) -> NDArray[np.float64]:
        """The numbers of each process, (count, count + FURTHER); valid until the next call."""
        # All have read what is overwritten here: they have called this once more since.
        everyone: NDArray[np.float64] = self._numbers[0]
        self._numbers = self._numbers[::-1]
        everyone[self.rank] = own
        self.barrier()
        return everyone

    def swap(self, rows: Tensor, to: Sequence[int], of: Sequence[int]) -> list[Tensor]:
        """As `Processes.swap_rows`."""
        turn = self._write(rows, to)
        return self._parts(rows, turn, self._entries[:, turn, 2 + self.rank : 4 + self.rank].tolist(), of)

    def gather(self, rows: Tensor, counts: Sequence[int]) -> list[Tensor]:
        """As `Processes.gather_rows`."""
        turn = self._write(rows, [0] * (self.count - 1) + [len(rows)])
        return self._parts(rows, turn, [(0, stop) for stop in self._entries[:, turn, -1].tolist()], counts)

    def _write(self, rows: Tensor, to: Sequence[int]) -> int:
        """Write rows, those for process 0 first, to a mailbox; returns which of the two, once all have written."""
        rows, turn = rows.contiguous(), self._turn
        data = rows.view(-1).view(torch.uint8)
        buffer = self.send_buffer(len(data), data)
        if buffer.data_ptr() != data.data_ptr():
            buffer.copy_(data)
        self._turn = 1 - turn
        each = len(data) // max(len(rows), 1)
        self._entries[self.rank, turn, 2:] = list(accumulate((each * number for number in to), initial=0))
        self.barrier()
        if self._find_boxes(turn):
            self.barrier()  # a process with a new mailbox may end once all have mapped it
        return turn

    def _parts(self, like: Tensor, turn: int, places: Sequence[Sequence[int]], counts: Sequence[int]) -> list[Tensor]:
        """The rows at these places of all mailboxes, `counts` of each; valid until the next message."""
        shape = like.shape[1:]
        each, found = like.element_size() * shape.numel(), []
        for rank, ((start, stop), number) in enumerate(zip(places, counts, strict=True)):
            if stop - start != each * number:
                raise ProcessesDisagreeError(
                    f"process {rank} has sent {stop - start} bytes instead of {each * number}: "
                    "it is at another place of the stream"
                )
            part = torch.from_numpy(self._mapped[rank, turn][start:stop])
            found.append(part.view(like.dtype).view(number, *shape))
        return found

    def share(self, tensors: Sequence[Tensor]) -> None:
        """Move tensors that are equal in all processes to memory that all of them write; called in all of them."""
        sizes = [one.numel() * one.element_size() for one in tensors]
        starts = list(accumulate((-(-size // 64) * 64 for size in sizes), initial=0))
        size = max(starts[-1], 1)
        file, memory = _new(size) if self.rank == 0 else (-1, None)
        number = int(self.gather(torch.tensor([file]), [1] * self.count)[0].item())
        if memory is None:
            file = _open(self.pids[0], number)
            memory = _mapped(file, size)
        self._shared = file, size, list(zip(tensors, starts, sizes, strict=False))
        if self.rank == 0:
            for one, start, size in self._shared[2]:
                data = torch.from_numpy(memory[start : start + size])
                data.view(one.dtype).view(one.shape).copy_(one.detach())
        self._place_tensors(memory)
        self.barrier()

    def unshare(self) -> None:
        """Make the tensors private to this process again; only pages that it changes are copied."""
        if self._shared is not None:
            file, size, _ = self._shared
            self._place_tensors(_mapped(file, size, private=True))
            os.close(file)
            self._shared = None

    def _place_tensors(self, memory: Bytes) -> None:
        assert self._shared is not None
        for one, start, size in self._shared[2]:
            one.data = torch.from_numpy(memory[start : start + size]).view(one.dtype).view(one.shape)


def _machine() -> str | None:
    """An identifier that processes have in common if they can share memory: kernel, process namespace and user."""
    if native._library is None or not hasattr(os, "memfd_create") or not hasattr(os, "pidfd_open"):
        return None
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{started} {Path('/proc/self/ns/pid').readlink()} {os.getuid()}"
    except OSError:
        return None


def _new(size: int) -> tuple[int, Bytes]:
    """An anonymous file in memory, and its bytes."""
    file = os.memfd_create("daes")
    try:
        os.ftruncate(file, size)
        return file, _mapped(file, size)
    except OSError as error:  # such as a limit on the size of files
        os.close(file)
        what = f"{size:,} bytes of memory that processes share"
        raise OSError(error.errno, error.strerror, what) from None


def _map(pid: int, file: int, size: int) -> Bytes:
    """The bytes of another process's file."""
    opened = _open(pid, file)
    try:
        return _mapped(opened, size)
    finally:
        os.close(opened)


def _open(pid: int, file: int) -> int:
    """Another process's file; a `RuntimeError` where it cannot be opened, as when the process has ended."""
    try:
        return os.open(f"/proc/{pid}/fd/{file}", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise RuntimeError(f"the memory of the process {pid} cannot be opened") from error


def _mapped(file: int, size: int, *, private: bool = False) -> Bytes:
    """The bytes of a file; if they are private, others do not see what is written to them."""
    flags = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
    return np.frombuffer(mmap.mmap(file, size, flags=flags), np.uint8)
