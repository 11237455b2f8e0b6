import numpy as np

from daes.storage.segments import Segments


def test_a_segment_that_is_dropped_outlives_the_checkpoints_that_refer_to_it(tmp_path):
    segments = Segments(tmp_path / "pending", keep=2)
    name = segments.write({"price": np.arange(3)})
    assert segments.read(name)["price"].tolist() == [0, 1, 2]
    segments.checkpoint()
    segments.drop(name)
    for _ in range(3):
        segments.checkpoint()
        assert (tmp_path / "pending" / name).exists()
    segments.checkpoint()
    assert not (tmp_path / "pending" / name).exists()


def test_after_an_interruption_files_that_no_checkpoint_needs_are_removed(tmp_path):
    first = Segments(tmp_path, keep=1)
    needed, lost = first.write({"rows": 1}), first.write({"rows": 2})
    again = Segments(tmp_path, keep=1)
    again.recover([needed])
    for _ in range(3):
        again.checkpoint()
    assert (tmp_path / needed).exists()
    assert not (tmp_path / lost).exists()
