from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daes.stream.columns import summarize_columns
from daes.stream.dataset import Dataset


def warnings(values: list[str], tmp_path: Path, name: str = "x", **options: object) -> list[str]:
    path = tmp_path / "a.csv"
    path.write_text(f"click;{name}\n" + "".join(f"1;{value}\n" for value in values))
    data = Dataset.open(path, separator=";", needs_label=False, **options)
    return [warning for column in summarize_columns(data)[1:] for warning in column.warnings]


@pytest.mark.parametrize(
    ("values", "part"),
    [
        (["1,5", "2,25", "3"] * 40, "decimal comma: --decimal ,"),
        (["1.000,5", "2,5"] * 40, "decimal comma"),
        ([f"{number},5" for number in range(100)], "decimal comma"),  # different ones do not identify the row
        (["$1.50", "$1,200"] * 40, "numbers with a currency or percent sign ($1.50)"),
        (
            ["36,870.00", "1,234,567.5", "812"] * 40,
            "thousands separators (36,870.00): without these it would be a number",
        ),
        (["36'870", "1 234 567"] * 40, "thousands separators (36'870)"),
        (
            ["1,250", "23,125"] * 40,
            "thousands separators (1,250): without these it would be a number; if they are",
        ),
        (["1", "2"] * 100 + ["x"], "is text, since its name is among its values: is the header repeated"),
        ([" Bern", " Rome"] * 40, "has spaces around its values, which are part of them: ' Bern' is not 'Bern'"),
        (["12 %", "13 %"] * 40, "numbers with a currency or percent sign (12 %)"),
        (
            ["1", "2"] * 50 + ["?"],
            "though 99.0% of its values are numbers; '?' is not. If",
        ),
        (
            [*map(str, range(40)), "?", "?"] * 20 + ["?"] * 300,
            "though 70.2% of its values are numbers; '?' is not. If that means missing: --missing '?'",
        ),
        ([*map(str, range(990, 1000)), "1,000"] * 9, "thousands separators (1,000): without these it would be"),
        ([*map(str, range(100)), "3,5"] * 2, "decimal comma: --decimal ,"),
        ([*(f"{number}.5" for number in range(100)), "3,5"] * 2, "99.0% of its values are numbers; '3,5' is not"),
        ([f" {10**18 + number % 9} " for number in range(100)], "more digits than a number can keep: list it in"),
        (["01/02/2026", "31.12.2026 10:00", "2026-01-31", "Thu, 01 Jan 2026"] * 40, "looks like dates (01/02/2026)"),
        ([f"00{number}" for number in range(100)], "looks like a code, not a number (000)"),
        ([str(10**18 + number) for number in range(100)], "a different value in nearly every row"),
        ([str(10**18 + number % 9) for number in range(100)], "more digits than a number can keep: list it in"),
        ([f"row {number}" for number in range(100)], "if it identifies the row, --exclude it"),
        (["one"] * 100, "has only one value"),
    ],
)
def test_what_may_be_wrong(tmp_path: Path, values: list[str], part: str) -> None:
    (found,) = warnings(values, tmp_path)
    assert part in found


@pytest.mark.parametrize(
    "values",
    [
        *(
            ["1.5", "2", "NA"] * 40,
            ["a", "b"] * 60,
            ["1", "2", "x"] * 40,
            ["0", "1"] * 60,
            ["1", " ", "2.5", "  "] * 40,
        ),
        *(["10:30", "23:59"] * 60, ["10.0.0.101", "1.10.2024.7"] * 60),
        *(["12-618-6566", "1-800-4995", "12-10-3045"] * 60, ["4 504 1581", "2 504 1581"] * 60),  # articles, no dates
        *(["02139", "10001"] * 60 + ["K1A 0B1"], ["030 123 456", "089 123 456"] * 60),  # codes, no numbers
    ],
)
def test_nothing_is_wrong(tmp_path: Path, values: list[str]) -> None:
    assert warnings(values, tmp_path) == []


def test_a_decimal_comma_that_was_told_is_a_number(tmp_path: Path) -> None:
    assert warnings(["1,5", "2,25"] * 60, tmp_path, decimal=",") == []
    (marks,) = warnings(["36.870,5", "1.234.567"] * 60, tmp_path, decimal=",")
    assert marks.endswith("thousands separators (36.870,5): without these it would be a number")
    points, prices = (["84.44", "75.8", "3"] * 40, [f"{cents / 100:.2f}" for cents in range(1000, 1200)])
    assert warnings(points, tmp_path, decimal=",") == [
        "is text that looks like numbers with a decimal point: --decimal ."
    ]
    assert "decimal point: --decimal ." in warnings(prices, tmp_path, decimal=",")[0]
    (marks,) = warnings(["1.250", "23.125"] * 40, tmp_path, decimal=",")
    assert marks.endswith("would be a number; if they are decimal points: --decimal .")
    assert warnings(["1", "2", "x", "y"] * 40, tmp_path, decimal=",") == []
    (typo,) = warnings(["1.5", "NULL", "2"] * 40 + ["y"], tmp_path)
    assert "though 98.8% of its values are numbers; 'y' is not. If" in typo
    (typo,) = warnings(["1,5", "2,25"] * 60 + ["2,5O"], tmp_path, decimal=",")
    assert "though 99.2% of its values are numbers; '2,5O' is not. If" in typo
    for decimal in ".,":  # what no number may contain: spaces that do not break, digits of other scripts
        (typo,) = warnings([f"1{decimal}5", "2"] * 60 + ["2\xa0", "１２"], tmp_path, decimal=decimal)
        assert "though 98.4% of its values are numbers; '2\\xa0', '１２' are not. If" in typo
    assert warnings(["1", "2"] * 50, tmp_path, name="shop_id") != []
    assert warnings(["1", "2"] * 50, tmp_path, name="paid") == []


def test_blank_and_nan_are_missing_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("click,blank,nan,spaces,word\n" + "1, ,NAN,  ,a \n0, 2.5,1.5, , b\n" * 2)
    found = {column.name: column for column in summarize_columns(Dataset.open(path))}
    facts = {name: (column.part, column.examples, column.missing) for name, column in found.items()}
    assert facts["blank"] == ("numerical", ("2.5",), 0.5)
    assert facts["nan"] == ("numerical", ("1.5",), 0.5)
    assert facts["spaces"][0] == "unused"
    assert facts["word"] == ("categorical", ("a ", " b"), 0)
    table = pa.table({"click": [0, 1], "price": [float("nan"), 2.0]})
    assert summarize_columns(Dataset.open(table))[1].missing == 0.5


def test_a_date_as_text_is_a_category_where_another_column_is_the_time() -> None:
    at = pa.array([1, 2], pa.timestamp("s"))
    table = pa.table({"click": [0, 1], "born": ["1.2.1990", "3.4.1991"], "at": at})
    assert summarize_columns(Dataset.open(table))[1].warnings == ()
    assert "looks like dates" in summarize_columns(Dataset.open(table, exclude=["at"]))[1].warnings[0]


def test_numbers_that_a_parquet_file_holds_as_text() -> None:
    table = pa.table(
        {
            "click": [0, 1] * 50,
            "price": [f"{number}.5" for number in range(50)] * 2,
            "comma": [f"{number},5" for number in range(50)] * 2,
            "odd": [*map(str, range(49)), "?"] * 2,
            "shop": [*map(str, range(50))] * 2,
        }
    )
    found = {column.name: column.warnings for column in summarize_columns(Dataset.open(table))}
    assert found["shop"] == ()
    assert found["price"] == ("is text, though all of its values are numbers: stored as numbers it would be numerical",)
    assert found["comma"] == (
        "is text that looks like numbers with a decimal comma: stored as numbers it would be numerical",
    )
    assert found["odd"] == ("is text, though 98.0% of its values are numbers; '?' is not. If that means missing: null",)


def test_what_is_missing_can_be_copied_to_the_command(tmp_path: Path) -> None:
    (typo,) = warnings(["1.5", "2"] * 60 + ["1,5O", "n a"], tmp_path)
    assert "'1,5O', 'n a' are not. If that means missing: --missing '\"1,5O\",n a';" in typo


def test_text_that_was_to_be_a_number_and_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = "".join(f"{n % 2},{'x12' if n == 7 else n},Bern,{n % 9:05}\n" for n in range(200))
    path.write_text("click,price,city,zip\n" + rows)
    found = {column.name: column for column in summarize_columns(Dataset.open(path, categorical=["zip"]))}
    assert [(found[name].part, found[name].why) for name in ("price", "city")] == [
        ("unused", "not in --categorical")
    ] * 2
    assert "though 99.5% of its values are numbers; 'x12' is not" in found["price"].warnings[0]
    assert found["city"].warnings == ()
    listed = Dataset.open(path, numerical=["zip"], categorical=[])
    assert [column.warnings for column in summarize_columns(listed, named={"zip"})] == [()] * 4


def test_typed_columns_and_rows_in_memory() -> None:
    table = pa.table(
        {
            "click": [0, 1, None],
            "price": [1.5, None, 2.0],
            "member": [True, False, True],
            "tags": [["a"], ["b"], []],
            "at": pa.array([1, 2, 3], pa.timestamp("s")),
            "other": pa.array([1, 2, 3], pa.timestamp("s")),
            "kind": pa.array(["a", "b", "a"]).dictionary_encode(),
        }
    )
    data = Dataset.open(table, time="at", exclude=["tags", "other"])
    found = {column.name: column for column in summarize_columns(data, named={"at", "tags", "other"})}
    parts = {name: (column.part, column.why) for name, column in found.items()}
    assert parts == {
        "click": ("label", "its name"),
        "price": ("numerical", "type double"),
        "member": ("categorical", "type bool"),
        "tags": ("unused", "excluded"),
        "at": ("time", "named"),
        "other": ("unused", "excluded"),
        "kind": ("categorical", "type dictionary<values=string, indices=int32, ordered=0>"),
    }
    assert found["price"].missing == pytest.approx(1 / 3)
    assert (found["member"].examples, found["member"].distinct) == (("true", "false"), 2)
    assert summarize_columns(Dataset.open("adstream:50").in_memory()) == []


def test_columns_whose_values_cannot_be_categories_are_shown_all_the_same() -> None:
    table = pa.table({"id": [2.0**60, 1.0], "tags": [["a"], []], "kind": pa.array(["", "a"]).dictionary_encode()})
    data = Dataset.open(table, numerical=[], categorical=["id", "kind"], needs_label=False)
    identity, tags, kind = summarize_columns(data)
    assert (identity.part, identity.distinct) == ("categorical", 2)
    assert (tags.part, tags.why) == ("unused", f"type {table.schema.field('tags').type}")
    assert (kind.examples, kind.missing) == (("a",), 0.5)


def test_columns_that_are_not_read_may_be_of_any_type() -> None:
    columns = {
        "uuid": pa.array([b"\xff" * 16] * 2, pa.binary(16)),
        "bytes": pa.array([b"\xff"] * 2, pa.large_binary()),
        "interval": pa.array([(1, 2, 3)] * 2, pa.month_day_nano_interval()),
        "struct": pa.array([{"a": 1}] * 2),
    }
    table = pa.table({"click": [0, 1], "price": [1.0, 2.0], **columns})
    found = summarize_columns(Dataset.open(table, exclude=[*columns]), named={*columns})
    assert [(column.name, column.examples) for column in found[2:]] == [(name, ()) for name in columns]


@pytest.mark.parametrize(
    ("labels", "warned"), [([0] * 150 + [1] * 50, True), ([0, 0, 0, 1] * 50, False), ([0] * 70 + [1] * 20, False)]
)
def test_rows_that_are_sorted_by_the_label(labels: list[int], warned: bool) -> None:
    table = pa.table({"click": labels, "price": np.arange(len(labels)) % 7, "at": np.arange(len(labels))})
    label = summarize_columns(Dataset.open(table))[0]
    assert any("comes in blocks, as if the rows were sorted by it" in warning for warning in label.warnings) == warned
    assert summarize_columns(Dataset.open(table, time="at"))[0].warnings == ()


def test_partitions_of_csv_files(tmp_path: Path) -> None:
    for click in ("0", "1"):
        path = tmp_path / f"click={click}" / f"at=2024-01-1{click}" / f"hour={click}" / "a.csv"
        path.parent.mkdir(parents=True)
        path.write_text("price\n2\n")
    data = Dataset.open(tmp_path, label="click", time="at", numerical=["price", "hour"])
    examples = {column.name: column.examples for column in summarize_columns(data)}
    assert examples == {
        "price": ("2",),
        "click": ("0", "1"),
        "at": ("2024-01-10", "2024-01-11"),
        "hour": ("0", "1"),
    }


def test_a_column_that_is_empty_where_the_data_start_is_not_lost_in_silence(tmp_path: Path) -> None:
    for day, late in enumerate((pa.nulls(4), pa.array([0.5, 2.0, None, 1.0]))):
        pq.write_table(
            pa.table({"click": [0, 1, 0, 1], "price": [1.0, 2.0, 3.0, 4.0], "late": late}), tmp_path / f"{day}.pq"
        )
    late = summarize_columns(Dataset.open(tmp_path))[2]
    assert (late.part, late.why, late.distinct) == ("unused", "empty", 3)
    assert late.warnings[0].startswith("is left out, since it is empty where the data start: if it has values later")
    named = Dataset.open(tmp_path, numerical=["price", "late"])
    assert named.sample(8).numerical[:, 1].tolist()[4:6] == [0.5, 2.0]
    assert summarize_columns(named, named={"price", "late"})[2].warnings == ()
