import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from daes.stream.hashing import hash_column, hash_text

ANY_TEXT = st.text(max_size=40)
INTEGER_TYPES = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


def oracle(value: str | int | bool | None) -> int:
    """The definition in the module's docstring, word for word."""
    if value is None:
        return 0
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
    data = text.encode("utf-8")
    padded = data + b"\0" * (-len(data) % 8) if data else b"\0" * 8
    h = (len(data) + 1) * 0x9E3779B97F4A7C15 % 2**64
    for (w,) in struct.iter_unpack("<Q", padded):
        x = h ^ w
        x = (x ^ (x >> 32)) * 0x0E9846AF9B1A615D % 2**64
        x = (x ^ (x >> 32)) * 0x0E9846AF9B1A615D % 2**64
        h = x ^ (x >> 28)
    return (h >> 1) or 1


def check(column: pa.Array | pa.ChunkedArray) -> None:
    hashes = hash_column(column)
    assert hashes.dtype == np.int64
    assert hashes.tolist() == [oracle(value) for value in column.to_pylist()]


class TestDefinition:
    def test_vectors_never_change(self) -> None:
        vectors = {
            "": 0x1455F8FDF576BE3D,
            "a": 0x458643305BC7E56E,
            "5": 0x5CED9CC099C479A1,
            "true": 0x6F5087FA0A5FDDFC,
            "05db9164": 0x2828DE979B301A99,
            "New York": 0x443C53182564CC50,
            "Zürich, Schweiz": 0x030D97223C920A26,
            "the quick brown fox": 0x3784EFC9CA80A214,
        }
        for text, expected in vectors.items():
            assert oracle(text) == hash_text(text) == expected
        assert hash_column(pa.array(list(vectors))).tolist() == list(vectors.values())

    @given(st.lists(st.none() | ANY_TEXT, max_size=50))
    def test_strings(self, values: list[str | None]) -> None:
        check(pa.array(values, pa.string()))
        check(pa.array(values, pa.large_string()))
        check(pa.array(values, pa.string()).cast(pa.string_view()))

    @given(st.integers(0, 20).flatmap(lambda n: st.lists(st.text("ab\0é"[: 3 if n else 4], min_size=n, max_size=n))))
    def test_strings_of_equal_length(self, values: list[str]) -> None:
        check(pa.array(values, pa.string()))

    @given(ANY_TEXT)
    def test_one_text(self, text: str) -> None:
        assert hash_text(text) == oracle(text)

    @given(st.sampled_from(INTEGER_TYPES), st.data())
    def test_integers(self, kind: pa.DataType, data: st.DataObject) -> None:
        low, high = (
            (0, 2**kind.bit_width - 1)
            if str(kind).startswith("u")
            else (
                -(2 ** (kind.bit_width - 1)),
                2 ** (kind.bit_width - 1) - 1,
            )
        )
        small = st.integers(max(low, 0), min(high, 10**8 - 1))
        values = data.draw(st.lists(st.none() | small, max_size=20) | st.lists(st.none() | st.integers(low, high)))
        check(pa.array(values, kind))

    def test_integers_around_every_power_of_ten(self) -> None:
        near = {10**power + step for power in range(19) for step in (-1, 0, 1)}
        for limit in (10**8, 10**16, 10**19):
            check(pa.array(sorted(value for value in near if value < limit)))
        check(pa.array(sorted(near | {-value for value in near})))
        check(pa.array([0, 7, 2**63, 2**64 - 1], pa.uint64()))
        for value in near:
            check(pa.array([value]))

    def test_every_number_of_four_digits_in_both_halves(self) -> None:
        four = np.arange(10_000)
        for values in (four, four * 10_000, four * 10_000 + four[::-1]):
            texts = pa.array([str(value) for value in values.tolist()])
            np.testing.assert_array_equal(hash_column(pa.array(values)), hash_column(texts))

    def test_booleans_nulls_and_dictionaries(self) -> None:
        check(pa.array([True, None, False]))
        check(pa.nulls(3))
        check(pa.array(["x", None, "y", "x"]).dictionary_encode())
        check(pa.array([7, None, -7, 7]).dictionary_encode())
        check(pa.array([], pa.string()).dictionary_encode())
        check(pa.DictionaryArray.from_arrays(pa.array([2, None, 1]), pa.array(["a", None, "c", "d", "e"])))

    def test_null_entry_of_a_dictionary_is_missing(self) -> None:
        for index in (pa.int8(), pa.uint8(), pa.int64()):
            indices = pa.array([0, 1, None, 2], index)
            column = pa.DictionaryArray.from_arrays(indices, pa.array(["a", None, "b"]))
            assert hash_column(column).tolist() == [oracle("a"), 0, 0, oracle("b")]

    def test_the_same_category_in_any_column_type(self) -> None:
        assert len({int(hash_column(pa.array([5], kind))[0]) for kind in INTEGER_TYPES} | {hash_text("5")}) == 1
        assert hash_column(pa.array([True])).tolist() == [hash_text("true")]

    def test_zero_is_kept_for_missing(self) -> None:
        # mix(0) = 0, so the word that equals the starting value has the hash 0 before the last step.
        word = (9 * 0x9E3779B97F4A7C15 % 2**64).to_bytes(8, "little")
        offsets = pa.py_buffer(np.array([0, 8, 16], np.int32))
        assert hash_column(pa.StringArray.from_buffers(2, offsets, pa.py_buffer(2 * word))).tolist() == [1, 1]

    def test_the_empty_text_is_not_missing(self) -> None:
        assert hash_column(pa.array(["", None])).tolist() == [oracle(""), 0]
        assert oracle("") > 0


class TestLayout:
    """Arrow arrays that are views into larger buffers."""

    @given(st.lists(st.none() | ANY_TEXT, min_size=1, max_size=60), st.data())
    def test_slices(self, values: list[str | None], data: st.DataObject) -> None:
        start = data.draw(st.integers(0, len(values)))
        length = data.draw(st.integers(0, len(values) - start))
        for column in (pa.array(values, pa.string()), pa.array(values).dictionary_encode()):
            check(column.slice(start, length))

    @pytest.mark.parametrize("values", [[1, None, 300, -4, 5] * 20, [True, None, False, True, False] * 20])
    def test_slices_of_other_types(self, values: list[int | None]) -> None:
        column = pa.array(values)
        for start in (0, 1, 7, 8, 9, 64, 99):
            check(column.slice(start, 13))

    def test_chunks(self) -> None:
        chunks = [["a", None], [], ["bb" * 9, ""], ["c"]]
        check(pa.chunked_array(chunks, pa.string()))
        check(pa.chunked_array([], pa.string()))
        different = [pa.array(["a", "b"]).dictionary_encode(), pa.array(["b", None]).dictionary_encode()]
        check(pa.chunked_array(different))

    def test_many_blocks(self) -> None:
        generator = np.random.default_rng(0)
        digits = generator.integers(0, 10**6, 40_000)
        for length in (0, 3, 8, 11):
            check(pa.array([str(value).zfill(length)[:length] for value in digits.tolist()]))
        mixed = [str(value) * (value % 5) if value % 7 else None for value in digits.tolist()]
        check(pa.array(mixed))
        check(pa.array(digits))

    @pytest.mark.parametrize("length", [*range(1, 18), 500, 512, 513, 520, 5000])
    def test_nothing_is_read_past_the_end(self, length: int) -> None:
        # The buffer ends with the last byte: reading on would be a ValueError of NumPy's, or foreign bytes.
        for texts in (["x" * length], ["y", "x" * length], ["x" * length, "", ""], ["z" * length, "y"]):
            offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
            data = pa.py_buffer("".join(texts).encode())
            check(pa.StringArray.from_buffers(len(texts), pa.py_buffer(offsets), data))

    def test_bytes_around_a_text_do_not_matter(self) -> None:
        data = pa.py_buffer(b"left-over the text and more of it")
        column = pa.StringArray.from_buffers(2, pa.py_buffer(np.array([10, 13, 18], np.int32)), data)
        assert column.to_pylist() == ["the", " text"]
        check(column)

    def test_null_slots_may_hold_anything(self) -> None:
        valid = pa.py_buffer(np.array([0b101], np.uint8))
        column = pa.StringArray.from_buffers(
            3, pa.py_buffer(np.array([0, 1, 13, 14], np.int32)), pa.py_buffer(b"a" + b"#" * 12 + b"b"), valid
        )
        assert column.to_pylist() == ["a", None, "b"]
        check(column)

    def test_no_bytes_at_all(self) -> None:
        check(pa.array([], pa.string()))
        check(pa.array([None, None], pa.string()))
        check(pa.array(["", ""]))


class TestQuality:
    def test_avalanche(self) -> None:
        """Each input bit flips each output bit half of the time: 4000 trials, so 0.5 ± 5 · 0.0079."""
        generator = np.random.default_rng(1)
        trials = 4000
        for length in (4, 8, 13):
            texts = generator.integers(0, 64, (trials, length), dtype=np.uint8) + 64
            before = hash_column(_ascii(texts))
            for bit in (0, 1, 2, 3, 4, 5):
                for position in range(length):
                    flipped = texts.copy()
                    flipped[:, position] ^= 1 << bit
                    changed = (before ^ hash_column(_ascii(flipped))).view(np.uint64)
                    rates = np.unpackbits(changed.view(np.uint8).reshape(trials, 8), axis=1, bitorder="little").mean(0)
                    assert rates[63] == 0
                    assert abs(rates[:63] - 0.5).max() < 5 * 0.5 / np.sqrt(trials)

    @pytest.mark.parametrize("text", ["{}", "{:012d}", "user_{}", "{:08x}", "{}00"])
    def test_fills_tables_evenly(self, text: str) -> None:
        hashes = hash_column(pa.array([text.format(value) for value in range(500_000)]))
        for size in (2, 10, 64, 1000, 1024, 4096, 10_007, 65_536):
            counts = np.bincount(hashes % size, minlength=size)
            expected = len(hashes) / size
            statistic = float(((counts - expected) ** 2).sum() / expected)
            # A true random hash would leave these bounds in one of 2500 such suites of 40 tables.
            assert 0.5e-5 < chi2.cdf(statistic, size - 1) < 1 - 0.5e-5

    @pytest.mark.parametrize("text", ["{:08x}", "{}", "user_{}@example.org", "{0:x}|{1:x}"])
    def test_a_million_ids_do_not_collide(self, text: str) -> None:
        ids = pa.array([text.format(value, 3 * value % 1000) for value in range(1_000_000)])
        assert len(np.unique(hash_column(ids))) == 1_000_000

    def test_grids_of_two_words_do_not_collide(self) -> None:
        grid = pa.array([f"{left:08d}{right:08d}" for left in range(1000) for right in range(1000)])
        assert len(np.unique(hash_column(grid))) == 1_000_000

    def test_short_ascii_texts_cannot_collide(self) -> None:
        """The claim of the docstring: h xor w differs for any two ASCII texts of up to 8 bytes.

        For two lengths n < m ≤ 8 it is equal only if the xor of both starting values is the xor of the two words,
        which has no bit above byte m and no top bit of a byte set.
        """
        starts = [(length + 1) * 0x9E3779B97F4A7C15 % 2**64 for length in range(9)]
        for longer in range(9):
            for shorter in range(longer):
                difference = starts[shorter] ^ starts[longer]
                assert difference >> (8 * longer) or difference & 0x8080808080808080


class TestErrors:
    @pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64(), pa.decimal128(5, 2)])
    def test_floats(self, kind: pa.DataType) -> None:
        column = pa.array([1], pa.int8()).cast(pa.float32()).cast(kind)
        with pytest.raises(TypeError, match=rf"{kind}.*list it as numerical".replace("(", r"\(").replace(")", r"\)")):
            hash_column(column)
        with pytest.raises(TypeError, match="list it as numerical"):
            hash_column(pa.chunked_array([column]))

    def test_dictionary_of_floats(self) -> None:
        with pytest.raises(TypeError, match=r"double.*list it as numerical"):
            hash_column(pa.array([1.5]).dictionary_encode())

    def test_lists(self) -> None:
        for kind in (pa.list_(pa.string()), pa.large_list(pa.string()), pa.list_(pa.string(), 1)):
            with pytest.raises(TypeError, match=r"list.*<.*a list is not one category"):
                hash_column(pa.array([["a"]], kind))

    def test_others(self) -> None:
        with pytest.raises(TypeError, match=r"timestamp\[s\]; cast it to strings"):
            hash_column(pa.array([0], pa.timestamp("s")))
        with pytest.raises(TypeError, match=r"binary; cast it to strings"):
            hash_column(pa.array([b"x"]))
        with pytest.raises(TypeError, match=r"pyarrow Array or ChunkedArray, got list"):
            hash_column(["a"])

    def test_an_empty_column_of_floats_is_refused_too(self) -> None:
        with pytest.raises(TypeError, match="list it as numerical"):
            hash_column(pa.array([], pa.float64()))
        with pytest.raises(TypeError, match="list it as numerical"):
            hash_column(pa.chunked_array([], pa.float64()))


def _ascii(codes: np.ndarray) -> pa.Array:
    """Rows of ASCII codes as strings."""
    count, length = codes.shape
    offsets = np.arange(0, count * length + 1, length, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(codes)))
