from socket import socket
from time import sleep

import pytest
import torch

from daes.embedding.processes import ProcessesDisagreeError
from daes.training.processes.group import LostProcessError, OtherProcessError, Processes, process_group


def raised(kind, call):
    with pytest.raises(kind) as error:
        call()
    return str(error.value)


def _tell(rank):
    processes = Processes()
    assert (processes.rank, processes.count, processes.first) == (rank, 3, rank == 0)
    assert processes.gather({"rank": rank}) == [{"rank": 0}, {"rank": 1}, {"rank": 2}]
    assert processes.gather_numbers("step", 7, 2.5 * rank).tolist() == [[0.0], [2.5], [5.0]]
    total = torch.full((2,), float(rank))
    processes.add(total)
    assert total.tolist() == [3.0, 3.0]
    rows = torch.cat(list(processes.gather_rows(torch.full((rank, 2), float(rank)), [0, 1, 2])))
    assert rows[:, 0].tolist() == [1.0, 2.0, 2.0]
    # Process 0 gives one row to each, process 1 none to anyone, process 2 all of its three to process 0.
    to, of = [[1, 1, 1], [0, 0, 0], [3, 0, 0]], [[1, 0, 3], [1, 0, 0], [1, 0, 0]]
    rows = processes.swap_rows(torch.arange(10.0 * rank, 10.0 * rank + sum(to[rank])), to[rank], of[rank])
    assert torch.cat(list(rows)).tolist() == [[0.0, 20.0, 21.0, 22.0], [1.0], [2.0]][rank]
    processes.compare({"data": {"rows": 3}})
    sentence = raised(ProcessesDisagreeError, lambda: processes.compare({"training": {"seed": rank // 2}}))
    assert "training.seed is 0 in process 0 and 1 in process 2" in sentence
    sentence = raised(ProcessesDisagreeError, lambda: processes.gather_numbers("step", 100 + rank))
    assert "at different rows (100, 101, 102)" in sentence
    late = 2**24 + (rank > 0)
    sentence = raised(ProcessesDisagreeError, lambda: processes.gather_numbers("step", late, 1.5))
    assert "at different rows (16,777,216, 16,777,217, 16,777,217)" in sentence
    assert "different rows (5, 5, 5)" in raised(
        ProcessesDisagreeError, lambda: processes.gather_numbers("exchange" if rank else "step", 5)
    )
    with processes.together():
        pass

    def fail():
        with processes.together():
            if rank > 0:
                raise ValueError(f"no such file in {rank}")

    return raised((ValueError, OtherProcessError), fail)


def test_three_processes(in_processes):
    told = in_processes(3, _tell)
    assert told == [
        "process 1 has failed: its output says why",
        "no such file in 1",
        "process 1 has failed: its output says why",
    ]


def test_alone(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    with process_group() as processes:
        assert not torch.distributed.is_initialized()
        assert (processes.count, processes.first, processes.device("cuda")) == (1, True, "cuda")
        assert processes.gather_numbers("step", 7, 2.5).tolist() == [[2.5]]
        with pytest.raises(ValueError, match="as it is"), processes.together():
            raise ValueError("as it is")


def test_devices_of_several_processes(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    processes = Processes()
    processes.count = 2
    assert processes.device("cpu") == "cpu"
    with pytest.raises(ValueError, match="device must be cuda, got cuda:0"):
        processes.device("cuda:0")
    with pytest.raises(ValueError, match="process 0 finds 1 of them"):
        processes.device("cuda")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")  # one process on each of two machines
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert (processes.device("cuda:0"), processes.device("cuda")) == ("cuda:0", "cuda:0")


def _silent(rank):
    if rank == 1:
        sleep(30)
    return Processes().gather(rank)


def test_a_process_that_does_not_answer(in_processes):
    def stop_waiting(workers):
        workers[0].join(25)  # it ends long before the other one would answer
        workers[1].kill()

    first, _ = in_processes(2, _silent, may_fail=True, timeout=2, meanwhile=stop_waiting)
    said = first.error.splitlines()[0]
    assert said.startswith("LostProcessError: process 0 of 2 has lost another one, which has ended or does not answer")
    assert said.count("has lost another one") == 1


def test_processes_that_do_not_meet(monkeypatch):
    """As where torchrun has been killed while they started."""
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, value in {"RANK": 1, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(LostProcessError, match="process 1 of 2 has not met the others within 1 s"), process_group(1):
        pass


def test_a_timeout_is_positive():
    with pytest.raises(ValueError, match="timeout must be positive, got 0"), process_group(0):
        pass


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"WORLD_SIZE": "abc"}, "WORLD_SIZE in the environment must be a number, as torchrun sets it .* got 'abc'"),
        ({"WORLD_SIZE": "2"}, "RANK in the environment must be a number, .* got None"),
        ({"WORLD_SIZE": "2", "RANK": "x"}, "RANK in the environment must be a number, .* got 'x'"),
    ],
)
def test_an_environment_that_is_not_torchruns(monkeypatch, environment, said):
    monkeypatch.delenv("RANK", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=said), process_group():
        pass
