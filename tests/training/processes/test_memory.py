"""What processes of one machine tell each other through memory."""

import os
import time

import pytest
import torch

from daes.training.processes import group, memory
from daes.training.processes.group import LostProcessError, Processes

resource = pytest.importorskip("resource")  # Windows has none
pytestmark = pytest.mark.skipif(memory._machine() is None, reason="compiled loops and Linux are needed")


def _tell(rank):
    processes = Processes()
    assert processes.memory is not None
    for size in (1, 5, 40_000, 3, 100_000, 7):  # mailboxes become larger, and stay so
        counts = [size + other for other in range(3)]
        rows = torch.full((size + rank, 2), float(rank), dtype=torch.float64)
        found = torch.cat(list(processes.gather_rows(rows, counts)))
        assert [len(found), *found[:, 1].unique().tolist()] == [sum(counts), 0.0, 1.0, 2.0]
        to = [size * (rank + 1)] * 3
        sent = torch.cat([torch.full((size * (rank + 1),), 10 * rank + other) for other in range(3)])
        found = processes.swap_rows(sent, to, [size, 2 * size, 3 * size])
        assert torch.cat(list(found)).tolist() == [rank] * size + [10 + rank] * 2 * size + [20 + rank] * 3 * size
    own = torch.nn.Parameter(torch.arange(6.0).view(2, 3)), torch.arange(3), torch.empty(0)
    processes.memory.share(own)
    with torch.no_grad():
        own[0].flatten()[rank] = 10.0 + rank
    processes.memory.barrier()
    assert own[0].tolist() == [[10.0, 11.0, 12.0], [3.0, 4.0, 5.0]]
    processes.memory.unshare()
    processes.memory.barrier()
    own[1].add_(rank)
    processes.memory.barrier()
    return own[1].tolist()


def test_what_is_told_and_shared(in_processes):
    assert in_processes(3, _tell) == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]


def _end(rank, how):
    processes = Processes()
    assert processes.gather(rank) == [0, 1]
    if rank == 1 and how == "ends":
        os._exit(3)
    if rank == 1 and how == "leaves":
        processes.memory.leave()
    if rank == 1:
        time.sleep(5)
        return None
    started = time.monotonic()
    with pytest.raises(LostProcessError, match="process 0 of 2 has lost another one"):
        processes.gather(rank)
    return time.monotonic() - started


@pytest.mark.parametrize("how", ["ends", "leaves", "is silent"])
def test_a_process_that_is_waited_for(how, in_processes):
    first, _ = in_processes(2, _end, how, may_fail=True, timeout=3)
    assert not first.error
    assert (first.value > 3) == (how == "is silent")


def _say_and_end(rank):
    told = Processes().gather("x" * 300_000 if rank == 0 else "")
    if rank == 0:
        os._exit(0)
    time.sleep(0.2)
    return [len(one) for one in told]


def test_what_a_process_said_before_it_ended(in_processes):
    _, second, third = in_processes(3, _say_and_end, may_fail=True)
    assert second.value == third.value == [300_000, 0, 0]


def _without_memory(rank, poor):
    if rank == poor:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    processes = Processes()
    return processes.memory is None, processes.gather(rank)


@pytest.mark.parametrize("poor", [0, 1])
def test_a_process_that_gets_no_memory_sends_messages(poor, in_processes):
    assert in_processes(2, _without_memory, poor) == [(True, [0, 1])] * 2


def _share_too_much(rank):
    processes = Processes()
    assert processes.memory is not None
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    processes.memory.share([torch.zeros(1000)])


def test_too_little_memory_is_said(in_processes):
    first, second = in_processes(2, _share_too_much, may_fail=True)
    assert "OSError: [Errno 27] File too large: '4,032 bytes of memory that processes share'" in first.error
    assert "RuntimeError: a process has ended" in second.error


def _lose(rank):
    processes = Processes()
    gather = processes.memory.gather

    def told(rows, counts):
        found = gather(rows, counts)
        processes.memory.pids[0] = 0  # as if the first process had ended since
        return found

    processes.memory.gather = told
    with processes.communicating():
        processes.memory.share([torch.zeros(3)])


def test_memory_of_a_process_that_has_ended(in_processes):
    _, second = in_processes(2, _lose, may_fail=True)
    assert second.error.startswith("LostProcessError: process 1 of 2 has lost another one")
    assert "the memory of the process 0 cannot be opened" in second.error


def _apart(rank):
    memory._machine = lambda: f"machine {rank}"
    processes = group.Processes()
    assert processes.memory is None
    return processes.gather(rank)


def test_processes_of_several_machines_send_messages(in_processes):
    assert in_processes(2, _apart) == [[0, 1]] * 2
