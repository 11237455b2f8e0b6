import csv
import gzip
import io
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daes.stream import bad_rows, csv_text
from daes.stream.bad_rows import BadRow
from daes.stream.csv import CsvSource
from daes.stream.cursor import SourceError
from daes.stream.cursor_source import CursorSource
from daes.stream.dataset import Dataset
from daes.stream.hashing import hash_text
from daes.stream.schema import Schema, infer_schema

SCHEMA = Schema("click", ("price",), ("city",))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_text, "_BLOCK", 16)


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def opened(where: Any, *, schema: Schema | None = None, bad_rows: str | None = None, **options: Any) -> CsvSource:
    source = CsvSource(where, **options)
    source.schema = schema
    source.configure(bad_rows=bad_rows)
    return source


def read(source: CsvSource, columns: list[str] | None = None) -> dict[str, list]:
    tables = list(source.iter_tables(columns, 3))
    assert all(table.num_rows == 3 for table in tables[:-1])
    return pa.concat_tables(tables).to_pydict()


FIELD = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)


@given(
    rows=st.lists(st.tuples(FIELD, FIELD, FIELD), min_size=1, max_size=12),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    line_end=st.sampled_from(["\n", "\r\n"]),
    block=st.integers(16, 64),
)
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_comes_back_whatever_the_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list, quoting: int, line_end: str, block: int
) -> None:
    monkeypatch.setattr(csv_text, "_BLOCK", block)
    out = io.StringIO(newline="")
    writer = csv.writer(out, quoting=quoting, lineterminator=line_end)
    writer.writerow(["first", "mid,dle", "last"])
    # Python leaves a lone carriage return unquoted; it ends a line to most readers.
    rows = [tuple(field.replace("\r", "") for field in row) for row in rows]
    writer.writerows(rows)
    path = write(tmp_path / "text.csv", out.getvalue())
    schema = Schema(None, (), ("first", "mid,dle", "last"))
    got = read(opened(path, schema=schema))
    for number, name in enumerate(schema.categorical):
        assert got[name] == [row[number] or None for row in rows]


def test_numbers_and_what_is_missing(tmp_path: Path, small_blocks: None) -> None:
    cells = ["1", "-2.5", "+3", " 4 ", "1e3", ".5", "inf", "-inf", "1e999", "", "NA", "NaN", "null", "nan"]
    want = [1, -2.5, 3, 4, 1000, 0.5, np.inf, -np.inf, np.inf, *[np.nan] * 5]
    text = "click,price,city\n" + "".join(f"{row % 2},{cell},{cell}\n" for row, cell in enumerate(cells))
    source = CsvSource(write(tmp_path / "numbers.csv", text))
    (batch,) = source.iter_batches(SCHEMA, 100)
    np.testing.assert_array_equal(batch.numerical[:, 0], np.array(want, np.float32))
    # Of the same cells as categories only the empty one is missing; NA may be Namibia.
    assert batch.categorical[:, 0].tolist() == [hash_text(cell) if cell else 0 for cell in cells]


def test_numbers_have_the_precision_of_float64(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a\n0.1\n1234567890.123\n")
    assert read(CsvSource(path)) == {"a": [0.1, 1234567890.123]}


def test_missing_values_may_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "click,price,city\n1,-,NA\n0,2,-\n")
    source = opened(path, schema=SCHEMA, missing=["-"], missing_categories=["-", "NA"])
    assert read(source) == {"click": [1, 0], "price": [None, 2], "city": [None, None]}


@pytest.mark.parametrize("text", ["NULL", "\\N", "None", "n/a", "<NA>"])
def test_what_databases_and_frames_write_for_a_missing_number(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "a.csv", f"click,price,city\n1,{text},{text}\n0,2,x\n")
    source = CsvSource(path)
    assert source.arrow_schema.field("price").type in (pa.float64(), pa.int64())
    (batch,) = source.iter_batches(SCHEMA, 4)
    assert np.isnan(batch.numerical[:, 0]).tolist() == [True, False]
    assert batch.categorical[0, 0] == hash_text(text)


@pytest.mark.parametrize("blank", [" ", "   ", "\t", " NA "])
def test_a_blank_number_is_missing(tmp_path: Path, blank: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"click,price,city\n1, 2.5,{blank}\n0,{blank},Bern\n")
    schema = infer_schema(path)
    assert (schema.numerical, schema.categorical) == (("price",), ("city",))
    source = CsvSource(path)
    (table,) = source.iter_tables(["price"], 8)
    assert table.column("price").to_pylist() == [2.5, None]
    source = CsvSource(path)
    source.configure(bad_rows="skip")
    (batch,) = source.iter_batches(schema, 8)
    assert str(batch.numerical.tolist()) == "[[2.5], [nan]]"
    assert source.bad_rows.count == 0


def test_a_time_of_day_is_a_category(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("click,at\n1,10:30\n0,23:59:59\n")
    assert infer_schema(path).categorical == ("at",)
    assert next(CsvSource(path).iter_tables(["at"], 8)).to_pydict() == {"at": ["10:30", "23:59:59"]}


@pytest.mark.parametrize(
    ("cells", "wanted"),
    [
        (["2024-01-02 03:04:05", "x", "2024-01-03 03:04:05"], "a timestamp without a time zone"),
        (["2024-01-02T03:04:05Z", "x", "2024-01-03T03:04:05Z"], "a timestamp with a time zone"),
        (["17", "x", "18"], "an integer"),
        (["17", "1.7E+01", "18"], "an integer"),
    ],
)
def test_a_bad_time_is_a_bad_row_and_the_others_are_times(tmp_path: Path, cells: list[str], wanted: str) -> None:
    path, schema = tmp_path / "a.csv", Schema("click", ("price",), (), time="at")
    path.write_text("click,price,at\n" + "".join(f"1,2,{cell}\n" for cell in cells))
    with pytest.raises(SourceError, match=f"row 2 of .*: column 'at' must be {wanted}.*, got '{re.escape(cells[1])}'"):
        list(CsvSource(path).iter_batches(schema, 8))
    source = CsvSource(path)
    source.configure(bad_rows="skip")
    (batch,) = source.iter_batches(schema, 8)
    assert batch.time is not None
    assert np.diff(batch.time).tolist() in ([1], [86_400 * 10**9])
    assert [row.row for row in source.bad_rows.first] == [2]


@pytest.mark.parametrize("bad", [b" ", b"x", b"17", b"1.5", b"0x1F", b"\xff"])
@pytest.mark.parametrize("good", [b"2024-01-02", b"2024-01-02 03:04:05", b"2024-01-02T03:04:05Z", b"18"])
def test_a_bad_time_may_be_the_first(tmp_path: Path, bad: bytes, good: bytes) -> None:
    path, schema = tmp_path / "a.csv", Schema("click", ("price",), (), time="at")
    found = []
    for cells in ([bad, good, good], [good, good, bad]):
        path.write_bytes(b"click,price,at\n" + b"".join(b"1,2,%s\n" % cell for cell in cells))
        source = CsvSource(path)
        source.configure(bad_rows="skip")
        (batch,) = source.iter_batches(schema, 8)
        found.append((source.bad_rows.count, batch.time.tolist()))
    readable = good == b"18" and bad in (b"17", b"0x1F")
    assert found[0][0] == found[1][0] == (0 if readable else 1)
    assert sorted(found[0][1]) == sorted(found[1][1])


@pytest.mark.parametrize("blank", [" ", "\t", " NA "])
@pytest.mark.parametrize("time", ["2024-01-02", "2024-01-02 03:04:05", "2024-01-02T03:04:05Z"])
def test_times_of_which_some_are_blank_are_times(tmp_path: Path, blank: str, time: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"click,price,at\n1,2,{blank}\n0,1,{time}\n")
    assert infer_schema(path).time == "at"


@pytest.mark.parametrize("blank", ["", " ", " NA "])
def test_labels_true_and_false_of_which_some_are_blank(tmp_path: Path, blank: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"click,price\n{blank},2\ntrue,1\nfalse,3\nTRUE,4\n")
    (batch,) = opened(path, bad_rows="skip").iter_batches(infer_schema(path), 8)
    assert batch.label.tolist() == [1, 0, 1]


def test_times_of_no_form_that_is_read_are_shown(tmp_path: Path) -> None:
    path, schema = tmp_path / "2.csv", Schema("click", ("price",), (), time="at")
    path.write_text("click,price,at\n1,2,31.1.2024\n")
    (tmp_path / "1.csv").write_text("click,price,at\n")
    with pytest.raises(SourceError, match=r"it is of type string, as '31\.1\.2024'; write all as 2024-01-31 10:00:00"):
        list(CsvSource(tmp_path).iter_batches(schema, 8))


def test_a_label_of_text_names_the_option_for_it(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("state,price\nclicked,1\nnot,2\n")
    data = Dataset.open(path, label="state")
    expected = "label column 'state' must hold 0 and 1, or the texts that --label-map (label_map) lists, got 'clicked'"
    with pytest.raises(SourceError, match=re.escape(expected)):
        data.sample(2)
    assert Dataset.open(path, label="state", label_map={"clicked": 1, "not": 0}).sample(2).label.tolist() == [1, 0]


def test_a_quote_that_swallows_rows_is_warned_of(tmp_path: Path) -> None:
    path, schema = tmp_path / "a.csv", Schema("click", ("price",), ("city",))
    for city in ('"Rome\nBern"', "Rome\n\n"):  # rows of two lines, and blank lines
        path.write_text("click,price,city\n" + "".join(f"{number % 2},{number},{city}\n" for number in range(300)))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert sum(map(len, CsvSource(path).iter_batches(schema, 64))) == 300
    rows = [f"{number % 2},{number},Rome\n" for number in range(300)]
    lines = "A long text, with a comma.\n" * 200
    path.write_text(f'click,price,city\n1,2,"{lines}"\n0,3,Rome\n')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sum(map(len, CsvSource(path).iter_batches(schema, 64))) == 2
    rows[20], rows[200] = '0,20,"Rome\n', '0,200,Rome"\n'
    path.write_text("click,price,city\n" + "".join(rows))
    with pytest.warns(UserWarning, match=r'row 21 of .* has a field of 181 lines: is a " not closed\?'):
        assert sum(map(len, CsvSource(path).iter_batches(schema, 64))) == 120


def test_a_decimal_comma(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "click;price;city\n1;12,5;a\n0;-0,25;b\n")
    with pytest.raises(ValueError, match="decimal must not be the separator where no field is in quotes, got ',' as"):
        CsvSource(path, separator=",", decimal=",", quoting=False)
    quoted = CsvSource(write(tmp_path / "c.csv", 'click,price,city\n1,"12,5",a\n'), decimal=",")
    (batch,) = quoted.iter_batches(SCHEMA, 4)
    assert batch.numerical[:, 0].tolist() == [12.5]
    source = CsvSource(path, separator=";", decimal=",")
    assert source.arrow_schema.field("price").type == pa.float64()
    (batch,) = source.iter_batches(SCHEMA, 4)
    assert batch.numerical[:, 0].tolist() == [12.5, -0.25]
    bad = write(tmp_path / "b.csv", "click;price;city\n1;12,5;a\n0;1.250,5;b\n1;3;c\n")
    source = opened(bad, separator=";", decimal=",", bad_rows="skip")
    (batch,) = source.iter_batches(SCHEMA, 4)
    assert batch.numerical[:, 0].tolist() == [12.5, 3]
    assert source.bad_rows.first[0].reason == "column 'price' must be a number with a decimal comma, got '1.250,5'"


def test_a_file_without_a_header_and_columns_without_a_name(tmp_path: Path) -> None:
    plain = CsvSource(write(tmp_path / "a.csv", "1,2.5,x\n0,3.5,y\n"), header=False)
    assert plain.arrow_schema.names == ["column_1", "column_2", "column_3"]
    (batch,) = plain.iter_batches(Schema("column_1", ("column_2",), ("column_3",)), 4)
    assert batch.numerical[:, 0].tolist() == [2.5, 3.5]
    indexed = CsvSource(write(tmp_path / "b.csv", ",click,price, \n0,1,2.5,x\n1,0,3.5,y\n"))
    assert indexed.arrow_schema.names == ["unnamed_1", "click", "price", "unnamed_4"]
    (batch,) = indexed.iter_batches(Schema("click", ("price",), ()), 4)
    assert batch.numerical[:, 0].tolist() == [2.5, 3.5]


@pytest.mark.parametrize("header", ["click,price,city", '"click"," price",city', "city,price,click"])
def test_a_header_of_the_given_names_is_not_a_row(tmp_path: Path, header: str) -> None:
    names = ("click", "price", "city")
    row = {"click": "1", "price": "2.5", "city": "price"}
    fields = [row[name] for name in header.replace('"', "").replace(" ", "").split(",")]
    path = write(tmp_path / "a.csv", f"\ufeff{header}\n{','.join(fields)}\n")
    source = CsvSource(path, header=False, column_names=names)
    (batch,) = source.iter_batches(SCHEMA, 4)
    assert (batch.label.tolist(), batch.numerical[:, 0].tolist()) == ([1], [2.5])
    again = CsvSource(path, header=False, column_names=names)
    again.seek(source.position())
    assert list(again.iter_batches(SCHEMA, 4)) == []


@pytest.mark.parametrize("first", ["click,price,price", "click,price,Bern"])
def test_a_first_row_of_other_words_is_a_row(tmp_path: Path, first: str) -> None:
    path = write(tmp_path / "a.csv", f"{first}\n1,2.5,Bern\n")
    source = opened(path, header=False, column_names=("click", "price", "city"), bad_rows="skip")
    (batch,) = source.iter_batches(SCHEMA, 4)
    assert (batch.numerical[:, 0].tolist(), source.bad_rows.count) == ([2.5], 1)


def test_categories_stay_text_and_without_a_schema_the_first_block_decides(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "id,n,flag,day,none\n007,1,true,2013-01-02,\n08,2.5,false,2013-01-03,\n")
    assert read(opened(path, schema=Schema(None, ("n",), ("id",))), ["id", "n"]) == {
        "id": ["007", "08"],
        "n": [1, 2.5],
    }
    types = {field.name: field.type for field in next(CsvSource(path).iter_tables(None, 5)).schema}
    assert types == {
        "id": pa.float64(),
        "n": pa.float64(),
        "flag": pa.bool_(),
        "day": pa.date32(),
        "none": pa.string(),
    }
    assert CsvSource(path).arrow_schema.field("none").type == pa.null()


@pytest.mark.parametrize(
    ("cells", "want"),
    [
        (["1700000000", "1700000001"], [1700000000, 1700000001]),
        (["2013-01-01", "2013-01-02"], [1356998400 * 10**9, 1357084800 * 10**9]),
        (["2013-01-01 00:00:01", "2013-01-01 00:00:02"], [1356998401 * 10**9, 1356998402 * 10**9]),
    ],
)
def test_time_and_a_label_of_words(tmp_path: Path, cells: list[str], want: list[int]) -> None:
    path = write(tmp_path / "a.csv", f"click,price,at\ntrue,1,{cells[0]}\nfalse,2,{cells[1]}\n")
    (batch,) = CsvSource(path).iter_batches(Schema("click", ("price",), (), time="at"), 10)
    assert batch.label is not None
    assert batch.time is not None
    assert (batch.label.tolist(), batch.time.tolist()) == ([1, 0], want)


def test_later_times_may_be_finer_than_the_first(tmp_path: Path, small_blocks: None) -> None:
    cells = ["2013-01-01", "2013-01-01 00:00:01", "2013-01-01T00:00:01.5", "3013-01-01", "2013-01-01 00:00:02Z"]
    path = write(tmp_path / "a.csv", "click,price,at\n" + "".join(f"1,{n},{cell}\n" for n, cell in enumerate(cells)))
    source = opened(path, bad_rows="skip")
    (batch,) = source.iter_batches(Schema("click", ("price",), (), time="at"), 10)
    assert batch.time is not None
    assert [time - 1356998400 * 10**9 for time in batch.time.tolist()] == [0, 10**9, 1_500_000_000]
    rule = "column 'at' must be a timestamp without a time zone, from 1678 to 2261, got "
    assert [row.reason for row in source.bad_rows.first] == [f"{rule}{cell!r}" for cell in cells[3:]]


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("a.csv", "a,b\n1,x\n2,y\n", {}),
        ("a.csv", "\ufeffa,b\n1,x\n2,y\n", {}),
        ("a.csv", "a,b\r\n1,x\r\n2,y", {}),
        ("a.csv", "a,b\n\n1,x\n\n\n2,y\n\n", {}),
        ("a.tsv", "a\tb\n1\tx\n2\ty\n", {}),
        ("A.TSV", "a\tb\n1\tx\n2\ty\n", {}),
        ("a.psv", "a|b\n1|x\n2|y\n", {}),
        ("a.csv", "a;b\n1;x\n2;y\n", {"separator": ";"}),
        ("a.csv", "\ufeffsep=;\r\na;b\r\n1;x\r\n2;y\r\n", {"separator": ";"}),
        ("a.txt", "1 x\n2 y\n", {"separator": " ", "column_names": ["a", "b"]}),
        ("a.csv", '"a","b"\n"1","x"\n2,y\n', {}),
        ("a.csv", "a,b,\u2028\n1,x,\n2,y,\n", {"columns": ["a", "b"]}),
    ],
)
def test_ways_to_write_the_same(tmp_path: Path, name: str, text: str, options: dict, small_blocks: None) -> None:
    columns = options.pop("columns", None)
    assert read(CsvSource(write(tmp_path / name, text), **options), columns) == {"a": [1, 2], "b": ["x", "y"]}


def test_without_quoting_a_quote_is_an_ordinary_character(tmp_path: Path, small_blocks: None) -> None:
    path = write(tmp_path / "a.tsv", 'a\tb\n1\t5" pipe\n2\t"x\n3\ty\n')
    assert read(CsvSource(path, quoting=False))["b"] == ['5" pipe', '"x', "y"]
    with pytest.raises(SourceError, match=r"a\.tsv ends within quotes.*--no-quotes, in Python quoting=False"):
        read(CsvSource(write(tmp_path / "a.tsv", 'a\tb\n1\t"x\n')))


def test_each_file_has_its_own_header(tmp_path: Path) -> None:
    one = write(tmp_path / "1.csv", "click,price,city\n1,2,x\n")
    two = write(tmp_path / "2.csv", "city,extra,click,price\ny,9,0,3\n")
    (batch,) = CsvSource([one, two]).iter_batches(SCHEMA, 10)
    assert batch.numerical.tolist() == [[2], [3]]
    three = write(tmp_path / "3.csv", "click,prize,city\n1,2,x\n")
    with pytest.raises(SourceError, match=r"3\.csv: there is no column 'price'; did you mean 'prize'"):
        list(CsvSource([one, two, three]).iter_batches(SCHEMA, 10))


def test_types_are_those_of_the_first_file_with_rows(tmp_path: Path) -> None:
    for number, rows in enumerate(["", "", "1,2,007\n", "0,3,x\n"]):
        write(tmp_path / f"{number}.csv", f"click,price,zip\n{rows}")
    data = Dataset.open(tmp_path, categorical=["zip"])
    assert data.schema == Schema("click", ("price",), ("zip",))
    assert data.sample(5).numerical.tolist() == [[2], [3]]
    with pytest.raises(ValueError, match="at least one column must have a value, got none in any row: click, price"):
        Dataset.open([tmp_path / "0.csv", tmp_path / "1.csv"])


def test_hexadecimal_ids_are_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "click,id,n,hex\n1,0x1f,10,1\n0,0X2A,0,-0x1\n")
    assert infer_schema(path) == Schema("click", ("n",), ("id", "hex"))


BAD = b"click,price,city\n1,1,a\n0,2,b\n1,3\n0,four,d\n1,5,e,e\n0,6,\xff\n1,7,g\n0,8,h\n"
REASONS = {
    3: "3 fields are expected; there are 2",
    4: "column 'price' must be a number, got 'four'",
    5: "3 fields are expected; there are 4",
    6: "column 'city' must be UTF-8 text, got b'\\xff'",
}


@pytest.mark.parametrize("block", [16, 30, 50, 10_000])
def test_a_bad_row_stops_with_file_and_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(csv_text, "_BLOCK", block)
    lines = BAD.split(b"\n")
    for row, reason in REASONS.items():
        text = b"\n".join(line for number, line in enumerate(lines) if number not in REASONS or number >= row)
        # The first bad row is named, at its place among the rows that are left.
        path = write(tmp_path / f"bad{row}.csv", text)
        with pytest.raises(SourceError, match=rf"^row 3 of .*bad{row}\.csv: ") as caught:
            list(CsvSource(path).iter_batches(SCHEMA, 2))
        assert str(caught.value).endswith(": " + reason)


@pytest.mark.parametrize("block", [16, 30, 50, 10_000])
def test_bad_rows_can_be_skipped_and_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(csv_text, "_BLOCK", block)
    files = [write(tmp_path / "1.csv", BAD), write(tmp_path / "2.csv", BAD)]
    source = opened(files, bad_rows="skip")
    batches = list(source.iter_batches(SCHEMA, 3))
    assert [batch.numerical[:, 0].tolist() for batch in batches] == [[1, 2, 7], [8, 1, 2], [7, 8]]
    assert source.bad_rows.count == 8
    assert source.bad_rows.first == [BadRow(str(file), row, REASONS[row]) for file in files for row in REASONS]
    assert str(source.bad_rows).startswith("8 bad rows left out, first: row 3 of ")
    source.seek({"row": 0})
    assert len(list(source.iter_batches(SCHEMA, 3))) == 3
    assert source.bad_rows.count == 8


def test_a_first_file_of_bad_rows_tells_no_types(tmp_path: Path) -> None:
    write(tmp_path / "1.csv", "click,price,city\n1,2\n0,2,3,4\n")
    write(tmp_path / "2.csv", "click,price,city\n1,0.5,a\n")
    data = Dataset.open(tmp_path, bad_rows="skip")
    assert data.schema == SCHEMA
    assert data.sample(5).numerical.tolist() == [[0.5]]
    assert [(Path(row.path).name, row.row) for row in data.bad_rows.first] == [("1.csv", 1), ("1.csv", 2)]
    for what, policy in ((tmp_path, "error"), (tmp_path / "1.csv", "skip")):
        with pytest.raises(SourceError, match=r"row 1 of .*1\.csv: 3 fields are expected; there are 2"):
            Dataset.open(what, bad_rows=policy)


@pytest.mark.parametrize("block", [16, 30, 50, 10_000])
def test_resume_among_bad_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(csv_text, "_BLOCK", block)
    files = [write(tmp_path / "1.csv", BAD), write(tmp_path / "2.csv", BAD)]
    prices = [1, 2, 7, 8, 1, 2, 7, 8]
    source = opened(files, bad_rows="skip")
    for number, _ in enumerate(source.iter_batches(SCHEMA, 1), start=1):
        again = opened(files, bad_rows="skip")
        again.seek(source.position())
        assert [batch.numerical[0, 0] for batch in again.iter_batches(SCHEMA, 1)] == prices[number:]
        assert {bad.row for bad in again.bad_rows.first} <= set(REASONS)


@pytest.mark.parametrize("block", [16, 50, 10_000])
def test_rows_are_numbered_through_and_only_good_ones_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(csv_text, "_BLOCK", block)
    good = [row for row in range(100) if row % 7 != 5]
    text = "click,price,city\n" + "".join(f"1,{row},x\n" if row in good else f"1,{row}\n" for row in range(100))
    path = write(tmp_path / "a.csv", text)
    source = opened(path, bad_rows="skip")
    assert [value for batch in source.iter_batches(SCHEMA, 9) for value in batch.numerical[:, 0].tolist()] == good
    assert [bad.row - 1 for bad in source.bad_rows.first] == [row for row in range(100) if row not in good]
    source.seek({"row": 40})
    assert next(source.iter_batches(SCHEMA, 3)).numerical[:, 0].tolist() == good[40:43]
    second = opened(path, bad_rows="skip")
    second.configure(shard=(1, 2))
    assert [batch.numerical[0, 0] for batch in second.iter_batches(SCHEMA, 5)] == good[5::10]


def test_rows_are_numbered_through_after_a_seek(tmp_path: Path, small_blocks: None) -> None:
    text = "click,price,city\n" + "".join(f"1,{row},x\n" for row in range(100)) + "1,oops,x\n"
    source = CsvSource(write(tmp_path / "a.csv", text))
    source.seek({"row": 90})
    with pytest.raises(SourceError, match=r"^row 101 of "):
        list(source.iter_batches(SCHEMA, 3))


def test_bad_rows_are_in_the_order_of_the_files(tmp_path: Path) -> None:
    # Text that is no number is found when a file is parsed, a label of 2 when a batch is made, which may be later.
    write(tmp_path / "1.csv", "click,price,city\n2,1,a\n")
    write(tmp_path / "2.csv", "click,price,city\n1,x,a\n1,2,a\n")
    source = opened(tmp_path, bad_rows="skip")
    assert sum(map(len, source.iter_batches(SCHEMA, 10))) == 1
    assert [Path(row.path).name for row in source.bad_rows.first] == ["1.csv", "2.csv"]


def test_only_the_first_bad_rows_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bad_rows, "_KEPT", 2)
    source = opened(write(tmp_path / "a.csv", "a\n1\nx\ny\nz\n2\n"), schema=Schema(None, ("a",), ()), bad_rows="skip")
    assert read(source) == {"a": [1, 2]}
    assert (source.bad_rows.count, [bad.row for bad in source.bad_rows.first]) == (3, [2, 3])
    assert str(CsvSource(tmp_path / "a.csv").bad_rows) == "no bad rows"


def test_rows_are_counted_not_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'click,price,city\n\n1,2,"x\ny"\n\n0,oops,z\n')
    with pytest.raises(SourceError, match=r"^row 2 of "):
        list(CsvSource(path).iter_batches(SCHEMA, 4))


def test_a_column_that_is_not_read_may_hold_anything(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"click,price,city,note\n1,2,x,\xff\n0,3,y,\xfe\n")
    (batch,) = CsvSource(path).iter_batches(SCHEMA, 4)
    assert batch.numerical[:, 0].tolist() == [2, 3]


def test_a_plain_file_is_sought_without_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_blocks: None
) -> None:
    monkeypatch.setattr(CursorSource, "_rows_at_once", 1)
    path = write(tmp_path / "a.csv", "click,price,city\n" + "".join(f"1,{row},x\n" for row in range(10, 60)))
    source = CsvSource(path)
    batches = source.iter_batches(SCHEMA, 10)
    next(batches), next(batches)
    position = source.position()
    assert position["offset"] > 100
    damaged = path.read_bytes().replace(b"1,10,x\n1,11,x\n", b"1,,,,,\n,,,,,x\n")
    write(path, damaged)
    again = opened(path, schema=SCHEMA)
    again.seek(position)
    assert [batch.numerical[0, 0] for batch in again.iter_batches(SCHEMA, 10)] == [30, 40, 50]


def test_damaged_and_empty_files(tmp_path: Path) -> None:
    text = "click,price,city\n" + "".join(f"1,{row},{hash_text(str(row))}\n" for row in range(20_000))
    whole = gzip.compress(text.encode())
    cut = write(tmp_path / "cut.csv.gz", whole[: len(whole) // 2])
    with pytest.raises(SourceError, match=r"cut\.csv\.gz is damaged or cut off: "):
        list(CsvSource(cut).iter_batches(SCHEMA, 1000))
    with pa.output_stream(str(tmp_path / "whole.zst"), compression="zstd") as out:
        out.write(text.encode())
    packed = (tmp_path / "whole.zst").read_bytes()
    with pytest.raises(SourceError, match=r"cut\.csv\.zst is damaged or cut off: "):
        list(CsvSource(write(tmp_path / "cut.csv.zst", packed[:-20])).iter_batches(SCHEMA, 1000))
    with pytest.raises(SourceError, match=r"plain\.csv\.gz is damaged or cut off: "):
        list(CsvSource(write(tmp_path / "plain.csv.gz", text)).iter_batches(SCHEMA, 1000))
    for name in ("empty.csv", "empty.csv.gz"):
        with pytest.raises(SourceError, match=rf"{name} is empty"):
            list(CsvSource(write(tmp_path / name, "")).iter_batches(SCHEMA, 1000))
    assert list(CsvSource(write(tmp_path / "header.csv", "click,price,city\n")).iter_batches(SCHEMA, 4)) == []
    with pytest.raises(SourceError, match=r"names\.csv must start with the names of its columns"):
        list(CsvSource(write(tmp_path / "names.csv", ",,\n1,2,3\n")).iter_batches(SCHEMA, 4))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (gzip.compress(b"a,b\n1,2\n", mtime=0), r"a\.csv must be UTF-8 text, got gzip: its name must end in \.gz"),
        ("a,b\n1,2\n".encode("utf-16"), "must be UTF-8 text, got UTF-16: convert it, as iconv"),
        (b"PAR1\x15\x04\x15", r"must be UTF-8 text, got a Parquet file \(--format parquet\)"),
        (b"PK\x03\x04\x14", "must be UTF-8 text, got a zip archive or an Excel file"),
        ("a,Größe\n1,2\n".encode("latin-1"), r"must be UTF-8 text, got b'a,Gr\\xf6"),
        (b"a,b\r1,2\r3,4\r", r"the rows of .*a\.csv must end in \\n or \\r\\n, got \\r alone: b'a,b"),
    ],
)
def test_what_is_no_csv_text_is_named(tmp_path: Path, content: bytes, sentence: str) -> None:
    with pytest.raises(SourceError, match=sentence):
        read(CsvSource(write(tmp_path / "a.csv", content)))


def test_a_row_without_end_is_refused_before_memory_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_text, "_BLOCK", 1 << 18)
    monkeypatch.setattr(csv_text, "_LONGEST_ROW", 1 << 20)
    path = write(tmp_path / "a.csv", 'click,price,city\n1,2,"x\n' + "1,2,x\n" * 200_000)
    with pytest.raises(SourceError, match=r'a\.csv has a row of more than 1 MiB .* is a " not closed\?'):
        list(opened(path, schema=SCHEMA).iter_batches(SCHEMA, 4))


def test_wrong_options(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "a\n1\n")
    with pytest.raises(ValueError, match="separator must be one ASCII character, got ', '"):
        CsvSource(path, separator=", ")
    with pytest.raises(ValueError, match="bad_rows must be 'error' or 'skip', got 'ignore'"):
        opened(path, bad_rows="ignore")
