"""The preparation of rows that goes with an exported model, against that of training."""

import datetime
import math
import re
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daes.model.export import HASHED
from daes.serving import rows
from daes.serving.rows import RowError, category_text, hash_category, hash_text, number, prepare
from daes.stream import category_text as column_text
from daes.stream import hashing


def by_column(values, kind=None):
    """What training makes of a column of these values."""
    return hashing.hash_column(column_text.category_text(pa.array(values, kind))).tolist()


DIGITS = st.text("0123456789", min_size=1, max_size=4)
NUMBERS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-", "+"]),
    DIGITS,
    st.builds(".{}".format, DIGITS) | st.just(""),
    st.builds("{}{}".format, st.sampled_from(["e-", "E+", "e"]), DIGITS) | st.just(""),
)
MOMENTS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["2024-01-05", "0001-12-31", "24-1-5"]),
    st.sampled_from(["T", " ", ""]),
    st.sampled_from(["10:00:00", "00:00:00", "23:59:59.0", "10:00:00.500", "10:00"]),
    st.sampled_from(["", "Z", "+00:00", "-0000", "+0130", "-07:00", ".5"]),
)
WORDS = st.sampled_from(
    ["True", "TRUE", "tRUE", "False", "FALSE", "-0", "-0.0", "007", "1.50", "inf", "nan", "a\n", "3.0\n"]
)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text() | NUMBERS | MOMENTS | WORDS | st.none(), min_size=1))
def test_texts_have_the_hashes_of_training(values):
    assert [hash_category(value) for value in values] == by_column(values, pa.string())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(allow_infinity=False).filter(lambda x: not abs(x) > 2**53) | st.none(), min_size=1))
def test_floats_have_the_hashes_of_training(values):
    assert [hash_category(value) for value in values] == by_column(values, pa.float64())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.none(), min_size=1))
def test_integers_have_the_hashes_of_training(values):
    assert [hash_category(value) for value in values] == by_column(values, pa.int64())


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, pa.bool_()),
        (datetime.date(2024, 1, 5), pa.date32()),
        (datetime.datetime(2024, 1, 5, 10, 0, 0, 500), pa.timestamp("us")),
        (datetime.datetime(2024, 1, 5), pa.timestamp("us")),
        (datetime.datetime(2024, 1, 5, 9, tzinfo=datetime.UTC), pa.timestamp("us", "UTC")),
        (datetime.time(10, 0), pa.time64("us")),
        (Decimal("1.50"), pa.decimal128(10, 2)),
        (Decimal("3.00"), pa.decimal128(10, 2)),
    ],
)
def test_other_types_have_the_hashes_of_training(value, kind):
    assert [hash_category(value)] == by_column([value], kind)


def test_the_hash_is_the_one_that_models_depend_on():
    assert {text: hash_text(text) for text in HASHED} == {text: hashing.hash_text(text) for text in HASHED}
    long = "x" * 10_000
    assert hash_category(long) == hashing.hash_text(long)


def test_numbers():
    assert [number(value) for value in (2, 2.5, True, Decimal("0.5"))] == [2.0, 2.5, 1.0, 0.5]
    assert math.isnan(number(None))
    assert [number(10**400), number(-(10**400))] == [math.inf, -math.inf]


@pytest.mark.parametrize(
    ("row", "field", "reason"),
    [
        ({"price": "1.5"}, "price", "must be a number, got '1.5'"),
        ({"price": [1]}, "price", "must be a number, got [1]"),
        ({"price": {}}, "price", "must be a number, got {}"),
        ({"price": b"1"}, "price", "must be a number, got b'1'"),
        ({"city": ["Bern"]}, "city", "must be a text, a number or a boolean, got ['Bern']"),
        ({"city": ["x" * 100]}, "city", f"must be a text, a number or a boolean, got ['{'x' * 58}…"),
        ({"city": 1e300}, "city", "must be exact as a category, got 1e+300: send it as a text"),
        ({"city": math.inf}, "city", "must be exact as a category, got inf: send it as a text"),
        ({"city": "\ud800"}, "city", "must be valid Unicode"),
    ],
)
def test_a_bad_value_is_named(row, field, reason):
    with pytest.raises(RowError, match=re.escape(f"row 1, {field!r}: {reason}")) as caught:
        prepare([{"price": 1.0, "city": "Bern"}, row], ["price"], ["city"])
    assert (caught.value.row, caught.value.field, caught.value.reason) == (1, field, reason)


def test_missing_values():
    numbers, hashes = prepare(
        [{}, {"price": None, "city": ""}, {"price": math.nan, "city": math.nan}], ["price"], ["city"]
    )
    assert all(math.isnan(row[0]) for row in numbers)
    assert hashes == [[0], [0], [0]]
    assert category_text("") is None


def test_texts_that_meant_a_missing_value_and_numbers_equal_to_them():
    said = {"missing": ("", "-999", "unknown"), "missing_categories": ("", "-999", "unknown")}
    values = [{"price": value, "city": value} for value in (-999, -999.0, "-999", "unknown", "")]
    numbers, hashes = prepare(values, ["price"], ["city"], **said)
    assert all(math.isnan(row[0]) for row in numbers)
    assert hashes == [[0]] * len(values)
    known = [{"price": 999, "city": "Bern"}, {"price": 10**400, "city": True}, {"price": True, "city": 0.5}]
    assert prepare(known, ["price"], ["city"], **said) == prepare(known, ["price"], ["city"])
    with pytest.raises(RowError, match="row 0, 'age': must be a number, got 'old'"):
        prepare([{"price": "unknown", "age": "old"}], ["price", "age"], [], **said)
    with pytest.raises(RowError, match="row 0, 'price': must be a number, got 'unknown'"):
        prepare(values[3:4], ["price"], ["city"])


def test_the_file_needs_the_standard_library_alone():
    script = "import sys; sys.path.insert(0, sys.argv[1]); import rows; print(sorted(sys.modules))"
    folder = rows.__file__.rpartition("/")[0]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, folder], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in eval(done.stdout)}
    assert loaded - {"rows", "__main__"} <= set(sys.stdlib_module_names)
