"""Random numbers addressed by (name, row), so that a row depends on nothing but the seed and its number."""

import zlib

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

_ROWS_PER_COUNTER = 4  # Philox makes four 64-bit words from each counter value
_SMALLEST = 2.0**-54


class Draws:
    """Independent uniforms for each (name, row), read from any row on without a search.

    Each name has its own Philox key and each row a place in the counter: reading rows 0…9 and then 10…19 gives the same
    numbers as reading 0…19, seeking is free, and adding a field does not change the others.

    >>> draws = Draws(seed=7)
    >>> bool((draws.uniform("price", 0, 100)[40:60] == draws.uniform("price", 40, 20)).all())
    True
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._keys: dict[str, NDArray[np.uint64]] = {}

    def uniform(self, name: str, start: int, count: int) -> Array:
        """Uniforms on the open interval (0, 1) for rows start … start + count − 1. **Shape**: (count,)."""
        counter, skipped = divmod(start, _ROWS_PER_COUNTER)
        generator = np.random.Generator(np.random.Philox(key=self._key(name), counter=counter))
        values = generator.random(skipped + count)[skipped:]
        return np.maximum(values, _SMALLEST, out=values)  # 0 would be −inf on a logarithmic scale

    def _key(self, name: str) -> NDArray[np.uint64]:
        if name not in self._keys:
            sequence = np.random.SeedSequence(self.seed, spawn_key=(zlib.crc32(name.encode()),))
            self._keys[name] = sequence.generate_state(2, np.uint64).astype(np.uint64)
        return self._keys[name]


def uniform_of_code(codes: IntArray, salt: int) -> Array:
    """A fixed uniform on [0, 1) for each code, without a table of the codes (SplitMix64's finaliser).

    >>> uniform_of_code(np.array([3, 4, 3]), salt=1).round(3).tolist()
    [0.028, 0.587, 0.028]
    """
    word = codes.astype(np.uint64)
    word += np.uint64((salt * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word ^= word >> np.uint64(shift)
        word *= np.uint64(factor)
    word ^= word >> np.uint64(31)
    return (word >> np.uint64(11)).astype(np.float64) * 2.0**-53


class Alias:
    """Walker's alias tables: draws a code by the weights of its group, from one uniform per row.

    Args:
        weights: one 1-D array of non-negative weights per group.
        codes: the codes of those weights, in the same form; by default numbered through all groups.

    >>> alias = Alias([np.array([1.0, 3.0])])
    >>> alias(np.array([0.1, 0.3, 0.9])).tolist()
    [0, 1, 1]
    """

    def __init__(self, weights: list[Array], codes: list[IntArray] | None = None) -> None:
        sizes = np.array([len(group) for group in weights])
        self._size = sizes.astype(np.float64)
        self._offset = np.cumsum(sizes) - sizes
        flat = np.arange(sizes.sum()) if codes is None else np.concatenate(codes)
        tables = [_alias_table(group) for group in weights]
        self._keep = np.concatenate([keep for keep, _ in tables])
        other = np.concatenate([alias + offset for (_, alias), offset in zip(tables, self._offset, strict=True)])
        self._codes = np.stack([flat[other], flat], axis=1).astype(np.int64).ravel()

    def __call__(self, uniform: Array, group: IntArray | None = None) -> IntArray:
        """One code for each uniform, drawn by the weights of its group (None: of the only group)."""
        place = uniform * (self._size[0] if group is None else self._size[group])
        entry = place.astype(np.int64)
        place -= entry
        if group is not None:
            entry += self._offset[group]
        keep = place < self._keep[entry]
        entry *= 2
        entry += keep
        return self._codes[entry]


def _alias_table(weights: Array) -> tuple[Array, IntArray]:
    """The probability of staying at each entry, and where to go otherwise."""
    keep = weights / weights.mean()
    alias = np.arange(len(weights))
    small = [entry for entry in range(len(keep)) if keep[entry] < 1]
    large = [entry for entry in range(len(keep)) if keep[entry] >= 1]
    while small and large:
        low, high = small.pop(), large[-1]
        alias[low] = high
        keep[high] -= 1 - keep[low]
        if keep[high] < 1:
            small.append(large.pop())
    keep[small + large] = 1  # these differ from 1 by rounding only
    return keep, alias
