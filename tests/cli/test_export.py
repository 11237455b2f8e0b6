"""`daes export`: the file, what is said of it, and what is refused."""

import errno
import os

import pytest

pytest.importorskip("onnxscript")


def test_a_file_and_what_prepares_rows_for_it(daes, trained, tmp_path):
    result = daes("export", trained, "--out", tmp_path / "model.pt2", "--json")
    assert result.exit_code == 0, result.output
    assert result.json == {
        "run": str(trained),
        "version": "model",
        "rows": 1200,
        "out": str(tmp_path / "model.pt2"),
        "rows_file": str(tmp_path / "model_rows.py"),
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.pt2", "model_rows.py"]


def test_what_is_refused(refused, trained, tmp_path):
    assert "out must end in .onnx or .pt2" in refused("export", trained, "--out", tmp_path / "model.bin")
    assert "format must be among onnx, torch" in refused(
        "export", trained, "--out", tmp_path / "model.onnx", "--format", "x"
    )
    assert "there is no folder" in refused("export", tmp_path / "nosuch", "--out", tmp_path / "model.onnx")
    assert "there is no folder" in refused("export", trained, "--out", tmp_path / "nosuch" / "model.onnx")


@pytest.mark.parametrize("name", ["model.onnx", "model.pt2"])
def test_a_full_disk_is_named_with_the_file(refused, trained, tmp_path, monkeypatch, name):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("daes.storage.durable.os.fsync", full)
    monkeypatch.setattr("torch.onnx.ONNXProgram.save", full)
    said = refused("export", trained, "--out", tmp_path / name, code=1)
    assert said == f"daes: {tmp_path / name}: No space left on device\n"
    assert list(tmp_path.iterdir()) == []
