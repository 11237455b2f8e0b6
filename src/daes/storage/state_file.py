"""A state in one file: safetensors for its arrays, JSON for the rest, a SHA-256 over all of it. Never pickle.

The file is an ordinary safetensors file, which any reader of that format opens. Its `__metadata__` holds

    sha256    of the whole file, with these 64 digits as zeros; always the first entry
    format    daes-state
    version   1
    structure the state as JSON, see `daes.storage.nested_state`

No name in a file is used as a path, and nothing in it can name code to run. The file is not written by safetensors,
because that library has no checksum, does not fix the order of metadata, and copies every array.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.storage.durable import replacing
from daes.storage.nested_state import (
    ITEM_SIZE,
    EncodedState,
    StateError,
    StoredArray,
    decode_state,
    encode_state,
    load_json,
)

FORMAT = "daes-state"
VERSION = "1"
MAX_HEADER = 100_000_000
"""Largest header in bytes, as in other readers of safetensors."""

_START = b'{"__metadata__":{"sha256":"'
_DIGEST = slice(8 + len(_START), 8 + len(_START) + 64)
_NO_DIGEST = "0" * 64
_CHUNK = 1 << 20


def write_state(path: str | os.PathLike[str], state: Any) -> None:
    """Write a state atomically and durably: `path` has either the new or the old content.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "state.safetensors"
    >>> write_state(path, {"weight": np.zeros(3), "epoch": 2})
    >>> read_state(path)
    {'weight': array([0., 0., 0.]), 'epoch': 2}
    """
    write_encoded(path, encode_state(state))


def write_encoded(path: str | os.PathLike[str], encoded: EncodedState) -> None:
    """`write_state` of an encoded state."""
    # Largest elements first, as in safetensors, so that every array is aligned for readers that map the file.
    arrays = sorted(encoded.arrays.items(), key=lambda item: -ITEM_SIZE[item[1].tag])
    metadata = {"sha256": _NO_DIGEST, "format": FORMAT, "version": VERSION, "structure": encoded.structure}
    header: Iterable[bytes | memoryview] = [safetensors_header(arrays, metadata)]
    with replacing(path) as file:
        digest = hashlib.sha256()
        for part in chain(header, (part for _, stored in arrays for part in stored.parts())):
            digest.update(part)
            file.write(part)
        file.seek(_DIGEST.start)
        file.write(digest.hexdigest().encode())


def read_state(path: str | os.PathLike[str], *, follow_symlinks: bool = True, map_above: int | None = None) -> Any:
    """Read a state, or raise a `StateError` with the reason why the file is refused.

    Arrays of more than `map_above` bytes are mapped into memory, copy on write: they need memory only for what is
    written to them, and the file does not change.
    """
    with _reading(Path(path), follow_symlinks) as file:
        header = _verify(file)
        structure, layout = _parse(header, os.fstat(file.fileno()).st_size - 8 - len(header))
        file.seek(8 + len(header))
        arrays = {name: _read_array(file, tag, shape, map_above) for name, tag, shape in layout}
        return decode_state(EncodedState(structure, arrays))


def safetensors_header(arrays: Iterable[tuple[str, StoredArray]], metadata: Mapping[str, str] | None = None) -> bytes:
    """The beginning of a safetensors file, before the bytes of these arrays: the header and its length."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    offset = 0
    for name, stored in arrays:
        end = offset + stored.size
        header[name] = {"dtype": stored.tag, "shape": stored.shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER:
        raise StateError(f"state has {len(text)} bytes of names and plain values; at most {MAX_HEADER} are allowed")
    return len(text).to_bytes(8, "little") + text


@contextmanager
def _reading(path: Path, follow_symlinks: bool) -> Iterator[BufferedReader]:
    if not follow_symlinks and path.is_symlink():
        raise StateError("it is a symbolic link")
    # Non-blocking, so that a pipe instead of a file is an error, not an endless wait.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | (0 if follow_symlinks else getattr(os, "O_NOFOLLOW", 0))
    with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise StateError("it is not a regular file")
        yield file


def _verify(file: BufferedReader) -> bytes:
    """Check a file against its SHA-256 and return the header."""
    size = os.fstat(file.fileno()).st_size
    start = file.read(_DIGEST.stop)
    if len(start) < _DIGEST.stop:
        raise StateError(f"it is truncated or not a state file: {size} bytes are too few")
    if start[8 : _DIGEST.start] != _START:
        raise StateError("it is not a state file of daes, or its beginning is damaged")
    length = int.from_bytes(start[:8], "little")
    if length > MAX_HEADER:
        raise StateError(f"its header must have at most {MAX_HEADER} bytes, got {length}")
    if 8 + length > size or length < len(_START):
        raise StateError(f"it is truncated: its header has {length} bytes, the file {size}")
    header = start[8:] + file.read(8 + length - _DIGEST.stop)
    digest = hashlib.sha256(start[: _DIGEST.start] + _NO_DIGEST.encode() + header[_DIGEST.stop - 8 :])
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    if digest.hexdigest().encode() != start[_DIGEST]:
        raise StateError("it is damaged: its content does not match its SHA-256")
    return header


def _parse(header: bytes, data_size: int) -> tuple[str, list[tuple[str, str, tuple[int, ...]]]]:
    """The structure and the layout of the arrays."""
    entries = load_json(header)
    match entries:
        case {"__metadata__": {"format": "daes-state", "version": str(version), "structure": str(structure)}}:
            pass
        case _:
            raise StateError("its header lacks format, version or structure")
    if version != VERSION:
        raise StateError(f"it has version {version}; this release reads version {VERSION}")
    return structure, array_layout(entries, data_size)


def array_layout(header: Mapping[str, Any], data_size: int) -> list[tuple[str, str, tuple[int, ...]]]:
    """Name, type and shape of each array in the order of a safetensors file with this header and so many bytes."""
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    layout = []
    offset = 0
    for name, entry in sorted(entries.items(), key=_begin):
        match entry:
            case {"dtype": str(tag), "shape": list(shape), "data_offsets": [int(begin), int(end)]}:
                valid = tag in ITEM_SIZE and all(type(side) is int and side >= 0 for side in shape)
                if valid and begin == offset and end - begin == prod(shape) * ITEM_SIZE[tag] and end <= data_size:
                    layout.append((name, tag, tuple(shape)))
                    offset = end
                    continue
        raise StateError(f"its array {name!r} has an invalid description: {str(entry)[:120]}")
    if offset != data_size:
        raise StateError(f"its arrays have {offset} bytes; the file has {data_size} after its header")
    return layout


def _begin(item: tuple[str, Any]) -> tuple[int, int]:
    match item[1]:
        case {"data_offsets": [int(begin), int(end)]}:
            return begin, end
    return -1, -1


def _read_array(file: BufferedReader, tag: str, shape: tuple[int, ...], map_above: int | None) -> StoredArray:
    size, place = prod(shape) * ITEM_SIZE[tag], file.tell()
    if map_above is not None and size > map_above:
        mapped = np.memmap(file, np.uint8, "c", place, (size,))
        file.seek(place + size)
        return StoredArray(tag, shape, mapped.view(np.ndarray))
    data = np.empty(size, dtype=np.uint8)
    read_bytes(file, data)
    return StoredArray(tag, shape, data)


def read_bytes(file: BufferedReader, into: NDArray[np.uint8]) -> None:
    """Fill an array with the next bytes of a file."""
    if file.readinto(into.data) != into.size:
        raise StateError("it was cut short while it was read")
