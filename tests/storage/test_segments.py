import errno

import numpy as np
import pytest

from daes.storage import checkpoint
from daes.storage.checkpoint import CheckpointError, CheckpointStore
from daes.storage.segments import Segments


def test_a_segment_that_is_dropped_outlives_the_checkpoints_that_refer_to_it(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints", keep=2)
    segments = Segments(tmp_path / "pending", store)
    name = segments.write({"price": np.arange(3)})
    assert segments.read(name)["price"].tolist() == [0, 1, 2]
    store.save(0, {"needs": name})
    segments.drop(name)
    store.save(1, {"needs": name})  # as if it was being written then
    for step in (2, 2, 2, 3):  # one that replaces another removes no earlier one
        segments.clean()
        assert (tmp_path / "pending" / name).exists()
        store.save(step, {})
    segments.clean()
    assert not (tmp_path / "pending" / name).exists()


def test_checkpoints_that_could_not_be_written_do_not_count(tmp_path, monkeypatch):
    store = CheckpointStore(tmp_path / "checkpoints", keep=1)
    segments = Segments(tmp_path / "pending", store)
    name = segments.write({"rows": 1})
    store.save(0, {"needs": name})
    segments.drop(name)

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "write_encoded", fail)
    for step in range(1, 6):
        with pytest.raises(CheckpointError, match="No space left"):
            store.save(step, {})
        segments.clean()
    assert segments.read(store.load().state["needs"]) == {"rows": 1}


def test_after_an_interruption_files_that_no_checkpoint_needs_are_removed(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints", keep=1)
    first = Segments(tmp_path, store)
    needed, lost = first.write({"rows": 1}), first.write({"rows": 2})
    again = Segments(tmp_path, store)
    again.recover([needed])
    for step in range(2):
        store.save(step, {})
    again.clean()
    assert (tmp_path / needed).exists()
    assert not (tmp_path / lost).exists()
