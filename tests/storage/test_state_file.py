"""One file, one state: readable by safetensors, atomic, and nothing damaged gets through."""

import errno
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from safetensors import safe_open

from daes.storage.nested_state import Pieces, StateError
from daes.storage.state_file import MAX_HEADER, read_state, write_state

STATE = {
    "model": {"weight": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3), "bias": torch.tensor([True, False])},
    "reservoir": np.linspace(0, 1, 5),
    "steps": [1, 2**70, None, float("nan")],
}


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def forge(header, data=b"", digest=None):
    """A file with any header and a right checksum: what an attacker, or another version, could write."""
    header = header | {"__metadata__": {"sha256": "0" * 64, **header["__metadata__"]}}
    text = json.dumps(header, separators=(",", ":")).encode()
    content = len(text).to_bytes(8, "little") + text + data
    return content.replace(b"0" * 64, (digest or hashlib.sha256(content).hexdigest()).encode(), 1)


def metadata(structure="null", version="1", form="daes-state"):
    return {"format": form, "version": version, "structure": structure}


def test_round_trip(tmp_path):
    path = tmp_path / "state.safetensors"
    write_state(path, STATE)
    state = read_state(path)
    assert torch.equal(state["model"]["weight"], STATE["model"]["weight"])
    assert state["model"]["weight"].dtype == torch.bfloat16
    assert state["model"]["bias"].tolist() == [True, False]
    np.testing.assert_array_equal(state["reservoir"], STATE["reservoir"])
    assert state["steps"][:3] == [1, 2**70, None]
    assert names(tmp_path) == ["state.safetensors"]


def test_what_was_read_can_be_written_to(tmp_path):
    write_state(tmp_path / "state", STATE)
    state = read_state(tmp_path / "state")
    state["reservoir"] += 1
    state["model"]["weight"] += 1
    assert state["reservoir"][0] == 1


def test_the_same_state_gives_the_same_bytes(tmp_path):
    for name in "ab":
        write_state(tmp_path / name, STATE)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_safetensors_reads_the_file(tmp_path):
    path = tmp_path / "state.safetensors"
    write_state(path, {**STATE, "empty": np.zeros((0, 3), dtype=np.int8), "name \ud800": np.float16(2)})
    with safe_open(path, framework="pt") as file:
        assert file.metadata()["format"] == "daes-state"
        assert torch.equal(file.get_tensor("model.weight"), STATE["model"]["weight"])
        np.testing.assert_array_equal(file.get_tensor("reservoir").numpy(), STATE["reservoir"])
        assert file.get_tensor("empty").shape == (0, 3)
        assert len(file.keys()) == 5


def test_arrays_are_aligned_for_readers_that_map_the_file(tmp_path):
    write_state(
        tmp_path / "state", {"a": np.zeros(3, dtype=np.int8), "b": np.zeros(2), "c": np.zeros(1, dtype=np.int16)}
    )
    content = (tmp_path / "state").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    assert length % 8 == 0
    assert header["b"]["data_offsets"][0] % 8 == 0
    assert header["c"]["data_offsets"][0] % 2 == 0


def test_every_flipped_bit_is_found(tmp_path):
    path = tmp_path / "state"
    write_state(path, {"a": torch.arange(3), "b": "text"})
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for position in range(len(content)):
        broken = bytearray(content)
        broken[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(broken)
        with pytest.raises(StateError):
            read_state(path)


def test_every_truncation_and_extension_is_found(tmp_path):
    path = tmp_path / "state"
    write_state(path, {"a": torch.arange(3), "b": "text"})
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(StateError):
            read_state(path)
    for extra in (b"\0", b" ", content):
        path.write_bytes(content + extra)
        with pytest.raises(StateError, match="does not match its SHA-256"):
            read_state(path)


def test_every_hole_of_zeros_is_found(tmp_path):
    """What a file system may leave of a file that was not synced."""
    path = tmp_path / "state"
    write_state(path, {"a": torch.arange(1, 300), "b": "text"})
    content = path.read_bytes()
    for start in range(0, len(content), 512):
        path.write_bytes(content[:start] + bytes(len(content[start : start + 512])) + content[start + 512 :])
        with pytest.raises(StateError):
            read_state(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "0 bytes are too few"),
        (b"PK\x03\x04" * 100, "not a state file of daes"),
        (safetensors.numpy.save({"a": np.zeros(40)}), "not a state file of daes"),
        (forge({"__metadata__": metadata()}, digest="f" * 64), "does not match its SHA-256"),
        (forge({"__metadata__": metadata(version="2")}), "it has version 2; this release reads version 1"),
        (forge({"__metadata__": metadata(form="other")}), "lacks format, version or structure"),
        (forge({"__metadata__": {"format": "daes-state", "version": "1"}}), "lacks format, version or structure"),
        (forge({"__metadata__": metadata(structure="{")}), "JSON is broken"),
        (forge({"__metadata__": metadata(structure="[" * 100_000)}), "nested too deeply|JSON is broken"),
        (forge({"__metadata__": metadata(structure='{"dict":{"x":{"__reduce__":"os.system"}}}')}), "does not know"),
        (forge({"__metadata__": metadata()}, b"surplus"), "arrays have 0 bytes; the file has 7"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_files_of_others_are_refused_with_a_reason(tmp_path, content, message):
    (tmp_path / "state").write_bytes(content)
    with pytest.raises(StateError, match=message):
        read_state(tmp_path / "state")


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]},
        {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]},
        {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [10**30], "data_offsets": [0, 4 * 10**30]},
        {"dtype": "F32", "shape": [1]},
        [0, 4],
    ],
    ids=str,
)
def test_invalid_descriptions_of_arrays_are_refused(tmp_path, entry):
    (tmp_path / "state").write_bytes(forge({"__metadata__": metadata('{"numpy":"x"}'), "x": entry}, bytes(4)))
    with pytest.raises(StateError, match="its array 'x' has an invalid description"):
        read_state(tmp_path / "state")


def test_overlapping_arrays_are_refused(tmp_path):
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    (tmp_path / "state").write_bytes(forge({"__metadata__": metadata(), "x": entry, "y": entry}, bytes(4)))
    with pytest.raises(StateError, match="its array 'y' has an invalid description"):
        read_state(tmp_path / "state")


def test_a_valid_forgery_is_read(tmp_path):
    """The forger of these tests is able to make a file that passes, so that the refusals above are no accident."""
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    (tmp_path / "state").write_bytes(forge({"__metadata__": metadata('{"numpy":"x"}'), "x": entry}, bytes(4)))
    assert read_state(tmp_path / "state").tolist() == [0.0]


def test_a_header_too_large_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "state"
    write_state(path, {"a": 1})
    content = path.read_bytes()
    for length in (MAX_HEADER + 1, 2**63):
        path.write_bytes(length.to_bytes(8, "little") + content[8:])
        with pytest.raises(StateError, match=f"its header must have at most {MAX_HEADER} bytes, got {length}"):
            read_state(path)


def test_a_state_with_too_much_text_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("daes.storage.state_file.MAX_HEADER", 1000)
    with pytest.raises(StateError, match="bytes of names and plain values; at most 1000 are allowed"):
        write_state(tmp_path / "state", {"a": "x" * 1000})
    assert names(tmp_path) == []


def test_links_and_pipes(tmp_path):
    write_state(tmp_path / "state", STATE)
    (tmp_path / "link").symlink_to("state")
    read_state(tmp_path / "link")
    with pytest.raises(StateError, match="symbolic link"):
        read_state(tmp_path / "link", follow_symlinks=False)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StateError, match="not a regular file"):
        read_state(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        read_state(tmp_path / "nothing")


def test_an_array_may_have_the_name_that_safetensors_keeps_for_itself(tmp_path):
    write_state(tmp_path / "state", {"__metadata__": np.ones(1)})
    assert read_state(tmp_path / "state")["__metadata__"].tolist() == [1.0]


def test_no_name_in_a_state_is_a_path(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    state = {"../escaped": np.ones(1), "/etc/escaped": np.ones(1), "a/b": {"..": np.ones(1)}, "..": 1}
    write_state(folder / "state", state)
    assert read_state(folder / "state").keys() == state.keys()
    assert names(tmp_path) == ["folder"]
    assert names(folder) == ["state"]


@pytest.mark.parametrize("broken", ["fsync", "rename", "interrupt"])
def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch, broken):
    path = tmp_path / "state"
    write_state(path, {"a": 1})

    def fail(*_):
        raise KeyboardInterrupt if broken == "interrupt" else OSError(errno.ENOSPC, "No space left on device")

    if broken == "rename":
        monkeypatch.setattr(Path, "replace", fail)
    else:
        monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(KeyboardInterrupt if broken == "interrupt" else OSError):
        write_state(path, {"a": 2})
    assert read_state(path) == {"a": 1}
    assert names(tmp_path) == ["state"]


def test_pieces_are_written_as_one_tensor(tmp_path):
    whole = torch.arange(12.0).reshape(4, 3)
    write_state(tmp_path / "whole", {"table": whole, "rest": torch.ones(2)})
    write_state(
        tmp_path / "pieces", {"table": Pieces(whole.dtype, (4, 3), lambda: iter(whole.split(3))), "rest": torch.ones(2)}
    )
    assert (tmp_path / "pieces").read_bytes() == (tmp_path / "whole").read_bytes()


def test_large_arrays_are_mapped(tmp_path):
    path = tmp_path / "state"
    write_state(path, STATE | {"table": torch.arange(1000.0).reshape(10, 100), "bytes": np.arange(7, dtype=np.uint8)})
    before = path.read_bytes()
    read, mapped = read_state(path), read_state(path, map_above=39)
    assert torch.equal(mapped["table"], read["table"])
    np.testing.assert_array_equal(mapped["reservoir"], read["reservoir"])
    np.testing.assert_array_equal(mapped["bytes"], read["bytes"])
    assert type(mapped["reservoir"]) is np.ndarray  # as any other, to be written again
    assert is_mapped(mapped["reservoir"])
    assert not is_mapped(mapped["bytes"])
    mapped["table"][0] = 5
    mapped["reservoir"][0] = 5
    assert path.read_bytes() == before
    path.unlink()
    assert mapped["table"][9, 99] == 999


def is_mapped(array):
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return array is not None
