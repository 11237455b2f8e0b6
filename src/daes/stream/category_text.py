"""The text of a category, which is hashed: the same for every format and type that the category is stored in.

A CSV file has only text, and programs write it differently: pandas writes True where others write true, and 3.0 for 3
if a value of the column is missing. So that a category has one text:

- whole numbers are decimal integers: the integer 3, the float 3.0 and the texts "3" and "3.0" are "3";
- other floats are their shortest text without an exponent: 0.5 is "0.5"; 1e-05 and "1e-05" are "0.00001";
- booleans and the texts True, TRUE, False, FALSE are "true" and "false";
- dates are "2024-01-05", timestamps "2024-01-05 10:00:00" with the fraction of a second if there is one; midnight is
  the date only, UTC is not written, other offsets are "+0100";
- times of day are "10:00:00";
- decimals have the digits of their type, except whole numbers: "1.50";
- an empty text is missing, like null and NaN;
- any other text is itself: "007" is not "7", "1.50" is not "1.5".
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from daes.stream.arrow import pa, pc
from daes.stream.hashing import string_buffers
from daes.stream.schema import is_text

_WORDS = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false", "-0": "0"}
_WHOLE = r"^(-?(?:0|[1-9][0-9]*))\.0+$"
_EXPONENT = r"^-?[0-9](?:\.[0-9]+)?[eE][+-][0-9]{1,3}$"
_CLOCK = r"^([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.0+|(\.[0-9]*[1-9])0*)$"
_MOMENT = (
    r"^([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.0+|(\.[0-9]*[1-9])0*)?"
    r"(?:Z|[+-]00:?00|([+-][0-9]{2}):?([0-9]{2}))?$"
)
_MIDNIGHT = r"^([0-9]{4}-[0-9]{2}-[0-9]{2}) 00:00:00$"


def category_text(column: Any) -> Any:
    """A column of categories in the form that is hashed; see the module.

    **Shape.** A pyarrow Array or ChunkedArray of n values → one of n values: strings, integers, booleans (hashed as
    "true" and "false"), dictionaries of these, or nulls. Columns of other types are returned as they are.

    >>> import pyarrow as pa
    >>> category_text(pa.array(["True", "3.0", "007", "", "2024-01-05T10:00:00.500Z"])).to_pylist()
    ['true', '3', '007', None, '2024-01-05 10:00:00.5']
    >>> category_text(pa.array([3.0, None])).to_pylist(), category_text(pa.array([3.0, 0.5])).to_pylist()
    ([3, None], ['3', '0.5'])
    """
    if isinstance(column, pa.ChunkedArray):
        if pa.types.is_floating(column.type):  # whole numbers or text: one decision for the column
            return category_text(column.combine_chunks())
        return pa.chunked_array([category_text(chunk) for chunk in column.chunks or [pa.nulls(0, column.type)]])
    types, kind = pa.types, column.type
    if types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(column.indices, category_text(column.dictionary))
    if types.is_floating(kind):
        return _from_floats(column)
    if types.is_decimal(kind) or types.is_date(kind) or types.is_timestamp(kind) or types.is_time(kind):
        return _from_text(pc.cast(column, pa.string()))
    return _from_text(column) if is_text(kind) else column


def _from_floats(column: Any) -> Any:
    """Floats as integers if all are whole, otherwise as text; NaN is null."""
    values = column.to_numpy(zero_copy_only=False)
    missing = np.isnan(values)
    # Beyond this limit a float stands for several integers: different categories may have become equal.
    limit = 2.0 ** (np.finfo(values.dtype).nmant + 1)
    whole = missing | (np.trunc(values) == values)
    bad = ~missing & whole & (np.abs(values) > limit)
    if bad.any():
        row = int(np.argmax(bad))
        raise TypeError(
            f"a category must be exact; the column is of type {column.type} and row {row} is {values[row]}; list it as "
            "numerical, or cast it to integers or strings"
        )
    if whole.all():
        return pa.array(np.where(missing, 0, values).astype(np.int64), mask=missing)
    return _positional(np.where(missing, 0, values), missing)


def _positional(values: NDArray[np.floating[Any]], missing: NDArray[np.bool_]) -> Any:
    """The shortest text of each float without an exponent, null where missing."""
    distinct, places = np.unique(values + 0.0, return_inverse=True)  # -0.0 becomes 0.0
    texts = pa.array([np.format_float_positional(value, trim="-") for value in distinct], pa.string())
    return texts.take(pa.array(places, mask=missing))


def _from_text(column: Any) -> Any:
    """Text in its standard form.

    A search in the bytes of all values tells which other forms may occur: in most columns none does.
    """
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        column = pc.cast(column, pa.large_string())
    text, lengths = _content(column)
    if (b"-" in text or b"+" in text) and (b"e" in text or b"E" in text):
        column = _without_exponents(column)
    if b"." in text and b".0" in text:  # one character is found twenty times as fast as two
        column = pc.replace_substring_regex(column, _WHOLE, r"\1")
    if b":" in text:
        column = pc.replace_substring_regex(column, _CLOCK, r"\1\2")
        column = pc.replace_substring_regex(column, _MOMENT, r"\1 \2\3\4\5")
        column = pc.replace_substring_regex(column, _MIDNIGHT, r"\1")
    if any(word[:1].encode() in text and word.encode() in text for word in _WORDS):
        place = pc.index_in(column, value_set=pa.array(list(_WORDS), column.type))
        column = pc.coalesce(pa.array(list(_WORDS.values()), column.type).take(place), column)
    empty = lengths == 0
    return pc.if_else(pa.array(empty), pa.scalar(None, column.type), column) if empty.any() else column


def _content(column: Any) -> tuple[bytes, NDArray[np.integer[Any]]]:
    """The concatenated bytes of all values of a string column, and the length of each."""
    if not len(column):
        return b"", np.zeros(0, dtype=np.int32)
    offsets, data = string_buffers(column)
    return data[int(offsets[0]) : int(offsets[-1])].tobytes(), np.diff(offsets)


def _without_exponents(column: Any) -> Any:
    matches = pc.fill_null(pc.match_substring_regex(column, _EXPONENT), False)
    if not pc.any(matches).as_py():
        return column
    values = pc.cast(column.filter(matches), pa.float64()).to_numpy()
    texts = _positional(values, np.zeros(len(values), dtype=bool))
    return pc.replace_with_mask(column, matches, texts.cast(column.type))
