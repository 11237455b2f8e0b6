import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engines
pytest.importorskip("torchrec", reason="torchrec is not installed")
WORKER = Path(__file__).with_name("sharded_worker.py")


@pytest.fixture
def work(tmp_path):
    def work(world, task, argument):
        """What each of `world` processes found."""
        store = tmp_path / f"store{world}"
        started = [
            subprocess.Popen(
                [sys.executable, str(WORKER), str(rank), str(world), str(store), task, str(argument)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(world)
        ]
        try:
            ended = [one.communicate(timeout=300) for one in started]
        finally:
            for one in started:
                one.kill()
        assert all(one.returncode == 0 for one in started), [said[1][-2000:] for said in ended]
        return [json.loads(said[0].strip().splitlines()[-1]) for said in ended]

    return work


@pytest.mark.parametrize(("world", "optimizer"), [(1, "adagrad"), (2, "adagrad"), (2, "sgd")])
def test_it_learns_as_one_table(work, world, optimizer):
    found = work(world, "train", optimizer)
    assert max(one["worst"] for one in found) < 1e-5
    assert sum(one["shard"][0] for one in found) == 50 + 7 + 4
    assert [one["first_row"] for one in found] == [0, 31][:world]


def test_two_processes_have_half_of_ten_million_rows_each(work):
    rows, width = 10_000_000, 8
    (alone,) = work(1, "memory", rows)
    halves = work(2, "memory", rows)
    assert alone["shard"] == [rows, width]
    assert [one["shard"] for one in halves] == [[rows // 2, width]] * 2
    both = rows * width * 4 * 2  # the table and Adagrad's sums
    assert 0.9 * both < alone["grown"] < 1.4 * both
    for half in halves:
        assert 0.4 < half["grown"] / alone["grown"] < 0.6


def test_a_model_is_saved_unsharded(work, tmp_path):
    first, second = work(2, "save", tmp_path / "model")
    assert first["worst"] < 1e-6
    assert first["sizes"] == {"city": 50, "device": 7}
    for one in (first, second):
        assert one["refused"].startswith("a sharded table has no state_dict")


def test_without_processes():
    from daes.engines.torchrec import ShardedEmbedding

    with pytest.raises(RuntimeError, match="a sharded table needs processes"):
        ShardedEmbedding([5], 4)
    with pytest.raises(ValueError, match="optimizer must be one of adagrad, sgd, adam, got 'adamw'"):
        ShardedEmbedding([5], 4, optimizer="adamw")
