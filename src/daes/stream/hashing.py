"""The 64-bit hash of a category, fully specified: saved models depend on it, so it never changes.

**Definition.** All arithmetic is on unsigned 64-bit integers, modulo 2⁶⁴. Let the text be n bytes of UTF-8.

1. Cut the bytes into words of 8, the last one padded with zero bytes; read each word little-endian: w_1 … w_k.
   The empty text has one word, 0.
2. h ← (n + 1) · 0x9E3779B97F4A7C15
3. For each word in turn: h ← mix(h xor w), where mix(x) is

       x ← x xor (x >> 32);  x ← x · 0x0E9846AF9B1A615D
       x ← x xor (x >> 32);  x ← x · 0x0E9846AF9B1A615D
       x ← x xor (x >> 28)

4. The hash is h >> 1, a non-negative 63-bit integer, or 1 if that is 0. A missing value has the hash 0.

mix is a bijection (Jon Maiga's xmxmx bit mixer). Therefore, before the last shift, two texts of equal length that
differ in one word never collide, nor do two ASCII texts of up to 8 bytes. The hash spreads well but does not resist
deliberate collisions. NumPy computes it for whole columns at once; the hash functions on PyPI take one text per call.

**Test vectors.**

>>> for text in ("", "a", "5", "true", "05db9164", "New York", "Zürich, Schweiz", "the quick brown fox"):
...     print(f"{hash_text(text):#018x} {text!r}")
0x1455f8fdf576be3d ''
0x458643305bc7e56e 'a'
0x5ced9cc099c479a1 '5'
0x6f5087fa0a5fddfc 'true'
0x2828de979b301a99 '05db9164'
0x443c53182564cc50 'New York'
0x030d97223c920a26 'Zürich, Schweiz'
0x3784efc9ca80a214 'the quick brown fox'

**Columns.** Integers are hashed as their decimal text, booleans as "true" and "false", and a dictionary column as its
values. `daes.stream.category_text` defines the text of a category, whatever format it is stored in.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.stream.arrow import pa, pc
from daes.stream.schema import is_text

Hashes = NDArray[np.int64]
_Words = NDArray[np.uint64]

_LENGTH_FACTOR = 0x9E3779B97F4A7C15
_MIX_FACTOR = 0x0E9846AF9B1A615D
_ALL_BITS = (1 << 64) - 1

_BLOCK = 16_384  # values at a time: the temporaries stay in the second-level cache, and calls cost little
_LONG = 512  # bytes; longer texts are hashed one by one, since a step for the whole column would serve few rows
_POWERS_OF_TEN = np.array([10**power for power in range(1, 20)], dtype=np.uint64)
_KEEP_BYTES = np.array([(1 << (8 * count)) - 1 for count in range(9)], dtype=np.uint64)


def hash_text(text: str) -> int:
    """The hash of one category; see `hash_column` for a whole column."""
    return max(_hash_bytes(text.encode()) >> 1, 1)


def hash_column(column: Any) -> Hashes:
    """Hash a column of categories: `hash_text` of each value, 0 where it is null.

    **Shape.** A pyarrow Array or ChunkedArray of n values → (n,) int64, each 0 (null) or ≥ 1. An empty string counts as
    a value here; `category_text` makes it null.

    Takes strings (of any Arrow layout), integers, booleans, dictionaries of these, and columns of nulls. Anything else
    is a TypeError that says what to do about it.

    >>> import pyarrow as pa
    >>> column = pa.array(["5", None, ""])
    >>> hash_column(column).tolist() == [hash_text("5"), 0, hash_text("")]
    True
    >>> hash_column(pa.array([5])) == hash_column(pa.array(["5"]))
    array([ True])
    """
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        raise TypeError(f"column must be a pyarrow Array or ChunkedArray, got {type(column).__name__}")
    chunks = (column.chunks or [pa.nulls(0, column.type)]) if isinstance(column, pa.ChunkedArray) else [column]
    out = np.empty(len(column), dtype=np.int64)
    start = 0
    for chunk in chunks:
        _hash_array(chunk, out[start : start + len(chunk)])
        start += len(chunk)
    return out


def _hash_array(array: Any, out: Hashes) -> None:
    kind = array.type
    if pa.types.is_null(kind):
        out[:] = 0
        return
    if pa.types.is_dictionary(kind):
        _hash_dictionary(array, out)
        return
    if pa.types.is_boolean(kind):
        out[:] = np.where(array.fill_null(False).to_numpy(zero_copy_only=False), hash_text("true"), hash_text("false"))
    elif pa.types.is_integer(kind):
        for start in range(0, len(array), _BLOCK):
            _hash_integers(array.slice(start, _BLOCK), out[start : start + _BLOCK])
    elif is_text(kind):
        plain = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        _hash_strings(array if plain else pc.cast(array, pa.large_string()), out)
    else:
        raise TypeError(_not_a_category(kind))
    if array.null_count:
        np.multiply(out, array.is_valid().to_numpy(zero_copy_only=False), out=out)


def _not_a_category(kind: Any) -> str:
    types = pa.types
    if types.is_floating(kind) or types.is_decimal(kind):
        advice = "list it as numerical, or cast it to integers or strings"
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        advice = "a list is not one category: explode it, join it into one string, or leave it out"
    else:
        advice = "cast it to strings"
    return f"a category must be a string, an integer or a boolean; the column is of type {kind}; {advice}"


def _hash_dictionary(array: Any, out: Hashes) -> None:
    if len(array.dictionary) > len(array):  # few rows with a large dictionary: hash only what they use
        _hash_array(array.cast(array.type.value_type), out)
        return
    table = np.zeros(len(array.dictionary) + 1, dtype=np.int64)  # entry 0 stands for null
    _hash_array(array.dictionary, table[1:])
    np.take(table, array.indices.cast(pa.int64()).fill_null(-1).to_numpy() + 1, out=out)


def _hash_integers(array: Any, out: Hashes) -> None:
    """Hash a block of integers as their decimal text; null slots get any value."""
    values = (array.fill_null(0) if array.null_count else array).to_numpy()
    if values.min() < 0:
        _hash_strings(pc.cast(array, pa.string()), out)
        return
    words, lengths = _decimal_words(values.astype(np.uint64))
    hashes, spare = out.view(np.uint64), np.empty(out.size, dtype=np.uint64)
    np.multiply(lengths + np.uint64(1), np.uint64(_LENGTH_FACTOR), out=hashes)
    for position, word in enumerate(words):
        np.bitwise_xor(word, hashes, out=word)
        _mix(word, spare)
        np.copyto(hashes, word, where=lengths > 8 * position)
    _finish(hashes)


def _decimal_words(values: _Words) -> tuple[list[_Words], _Words]:
    """The words of the values' decimal texts, first words first, and the lengths of the texts."""
    lengths = np.searchsorted(_POWERS_OF_TEN, values, side="right").astype(np.uint64) + np.uint64(1)
    words: list[_Words] = []
    for _ in range(0, int(lengths.max()), 8):
        higher = values // np.uint64(10**8)
        words.insert(0, _eight_digits(values - higher * np.uint64(10**8)))
        values = higher
    # The texts are right-aligned in the words: shift out their leading zeros, first by whole words, then by bits.
    spaces = np.uint64(8 * len(words)) - lengths
    for _ in words[1:]:
        far = spaces >= 8
        following = [*words[1:], np.zeros_like(lengths)]
        words = [np.where(far, after, word) for word, after in zip(words, following, strict=True)]
        spaces -= np.where(far, np.uint64(8), np.uint64(0))
    bits = np.uint64(8) * spaces
    for word, after in pairwise(words):
        np.right_shift(word, bits, out=word)
        word |= after << (np.uint64(64) - bits)
    np.right_shift(words[-1], bits, out=words[-1])
    return words, lengths


def _eight_digits(values: _Words) -> _Words:
    """Values below 10⁸ as words of 8 ASCII digits, leading zeros included.

    The value is split into lanes of 32 bits with 4 digits each, then of 16 bits with 2 and of 8 bits with 1, all lanes
    at once, with the leading digit in the lowest lane. Multiplying by 10486/2²⁰ and 103/2¹⁰ and rounding down divides
    all numbers of 4 digits by 100 and all of 2 digits by 10.
    """
    high = values // np.uint64(10_000)
    fours = high | ((values - high * np.uint64(10_000)) << np.uint64(32))
    high = ((fours * np.uint64(10_486)) >> np.uint64(20)) & np.uint64(0x0000007F_0000007F)
    pairs = high | ((fours - high * np.uint64(100)) << np.uint64(16))
    high = ((pairs * np.uint64(103)) >> np.uint64(10)) & np.uint64(0x000F_000F_000F_000F)
    digits: _Words = high | ((pairs - high * np.uint64(10)) << np.uint64(8))
    digits |= np.uint64(0x30303030_30303030)
    return digits


def _hash_strings(array: Any, out: Hashes) -> None:
    """Hash a string or large_string array from its buffers; null slots get any value."""
    if not len(array):
        return
    offsets, data = string_buffers(array)
    padded = np.zeros(int(offsets[-1] - offsets[0]) + 8, dtype=np.uint8)  # words are read 8 bytes at a time
    padded[:-8] = data[int(offsets[0]) : int(offsets[-1])]
    _hash_blocks(offsets - offsets[0], padded, out.view(np.uint64))


def string_buffers(array: Any) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """The offsets (n + 1) and bytes of a string or large_string array that is not empty."""
    width = np.int64 if pa.types.is_large_string(array.type) else np.int32
    _, offsets, data = array.buffers()
    starts = np.frombuffer(offsets, dtype=width)[array.offset : array.offset + len(array) + 1]
    return starts, np.frombuffer(data or b"", dtype=np.uint8)


def _hash_blocks(offsets: NDArray[Any], data: NDArray[np.uint8], out: _Words) -> None:
    """Hash `out.size` texts, text i being data[offsets[i]:offsets[i + 1]], with 8 readable bytes after each."""
    spare = np.empty(min(_BLOCK, out.size), dtype=np.uint64)
    for start in range(0, out.size, _BLOCK):
        hashes = out[start : start + _BLOCK]
        block = offsets[start : start + hashes.size + 1].astype(np.int64)
        starts, lengths = block[:-1], np.diff(block)
        shortest, longest = int(lengths.min()), int(lengths.max())
        if shortest == longest <= 8:
            _hash_equal(int(starts[0]), longest, data, hashes, spare[: hashes.size])
        else:
            _hash_mixed(starts, lengths, data, hashes, spare[: hashes.size])


def _hash_equal(start: int, length: int, data: NDArray[np.uint8], hashes: _Words, spare: _Words) -> None:
    """Hash adjacent texts of the same length ≤ 8."""
    words = _windows(data, start, hashes.size, stride=length)
    np.bitwise_and(words, _KEEP_BYTES[length], out=hashes)
    np.bitwise_xor(hashes, np.uint64((length + 1) * _LENGTH_FACTOR & _ALL_BITS), out=hashes)
    _mix(hashes, spare)
    _finish(hashes)


def _hash_mixed(
    starts: NDArray[np.int64], lengths: NDArray[np.int64], data: NDArray[np.uint8], hashes: _Words, spare: _Words
) -> None:
    """Hash texts of any lengths."""
    # A window at every byte: indexing by position reads a text's word, wherever it starts.
    windows = _windows(data, 0, data.size - 7, stride=1)
    np.take(_KEEP_BYTES, lengths, out=spare, mode="clip")
    np.bitwise_and(windows[starts], spare, out=hashes)
    np.add(lengths, 1, out=spare.view(np.int64))
    np.multiply(spare, np.uint64(_LENGTH_FACTOR), out=spare)
    np.bitwise_xor(hashes, spare, out=hashes)
    _mix(hashes, spare)
    _hash_further_words(starts, lengths, windows, hashes)
    for index in np.flatnonzero(lengths > _LONG):
        hashes[index] = _hash_bytes(data[starts[index] :][: lengths[index]].tobytes())
    _finish(hashes)


def _hash_further_words(starts: NDArray[np.int64], lengths: NDArray[np.int64], windows: _Words, hashes: _Words) -> None:
    """Mix in the second and later words of the texts that have them."""
    rows = np.flatnonzero((lengths > 8) & (lengths <= _LONG))
    position = 8
    while rows.size:
        words = windows[starts[rows] + position]
        words &= np.take(_KEEP_BYTES, lengths[rows] - position, mode="clip")
        words ^= hashes[rows]
        _mix(words, np.empty_like(words))
        hashes[rows] = words
        position += 8
        rows = rows[lengths[rows] > position]


def _windows(data: NDArray[np.uint8], start: int, count: int, stride: int) -> _Words:
    """`count` little-endian words at start, start + stride, …: a view, even if they are unaligned or overlap."""
    return np.ndarray((count,), dtype="<u8", buffer=data, offset=start, strides=(stride,))


def _mix(words: _Words, spare: _Words) -> None:
    """mix of the definition, in place; `spare` is scratch memory of the same size."""
    for _ in range(2):
        np.right_shift(words, 32, out=spare)
        np.bitwise_xor(words, spare, out=words)
        np.multiply(words, np.uint64(_MIX_FACTOR), out=words)
    np.right_shift(words, 28, out=spare)
    np.bitwise_xor(words, spare, out=words)


def _finish(words: _Words) -> None:
    """The last step of the definition, in place."""
    np.right_shift(words, 1, out=words)
    np.maximum(words, 1, out=words)


def _hash_bytes(text: bytes) -> int:
    """The definition for one text, up to and including step 3."""
    state = (len(text) + 1) * _LENGTH_FACTOR & _ALL_BITS
    for start in range(0, max(len(text), 1), 8):
        state ^= int.from_bytes(text[start : start + 8], "little")
        state ^= state >> 32
        state = state * _MIX_FACTOR & _ALL_BITS
        state ^= state >> 32
        state = state * _MIX_FACTOR & _ALL_BITS
        state ^= state >> 28
    return state
