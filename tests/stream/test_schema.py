import gzip
import json
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daes.stream.schema import Schema, infer_schema, no_such_column

TABLE = pa.table(
    {
        "at": pa.array([1, 2], pa.timestamp("s")),
        "city": ["Bern", "Rome"],
        "price": [0.5, 2.0],
        "Click": [0, 1],
        "mobile": [True, False],
        "hour": pa.array([3, 4], pa.int8()),
        "device": pa.array(["a", "b"]).dictionary_encode(),
        "tax": pa.array([1, 2], pa.decimal128(5, 2)),
    }
)
INFERRED = Schema("Click", ("price", "hour", "tax"), ("city", "mobile", "device"), time="at")


class TestSchema:
    def test_columns_in_the_schemas_order(self) -> None:
        schema = Schema("y", ("b", "a"), ("d", "c"), time="t", weight="w")
        assert schema.columns == ("y", "b", "a", "d", "c", "t", "w")
        assert (schema.num_numerical, schema.num_categorical) == (2, 2)
        assert Schema(None, (), ("c",)).columns == ("c",)

    def test_lists_become_tuples_so_that_schemas_compare_and_hash(self) -> None:
        schema = Schema("y", ["a"], ["b"])  # type: ignore[arg-type]
        assert schema == Schema("y", ("a",), ("b",))
        assert hash(schema) == hash(Schema("y", ("a",), ("b",)))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"label": "y", "numerical": (), "categorical": ()}, "at least one feature"),
            ({"label": "y", "numerical": ("a", "a"), "categorical": ()}, "numerical must name each column once.*'a'"),
            ({"label": "a", "numerical": ("a",), "categorical": ()}, "'a' is label and numerical"),
            ({"label": "y", "numerical": ("a",), "categorical": ("a",)}, "'a' is numerical and categorical"),
            ({"label": "y", "numerical": ("a",), "categorical": (), "time": "a"}, "'a' is numerical and time"),
            ({"label": "y", "numerical": ("a",), "categorical": (), "weight": "y"}, "'y' is label and weight"),
            ({"label": "", "numerical": ("a",), "categorical": ()}, "label must be named by a non-empty string"),
            ({"label": "y", "numerical": ("",), "categorical": ()}, "numerical must be named by a non-empty"),
            ({"label": "y", "numerical": (3,), "categorical": ()}, "numerical must be named by a non-empty.*3"),
            ({"label": "y", "numerical": "price", "categorical": ()}, "numerical must be a sequence.*'price'"),
            ({"label": "y", "numerical": None, "categorical": ("a",)}, "numerical must be a sequence.*None"),
        ],
    )
    def test_refuses(self, arguments: dict[str, object], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Schema(**arguments)  # type: ignore[arg-type]


class TestJson:
    @given(st.lists(st.text(min_size=1), min_size=4, max_size=8, unique=True), st.booleans(), st.integers(0, 3))
    def test_round_trip(self, names: list[str], label: bool, cut: int) -> None:
        features, time, weight = names[1:-2], names[-2], names[-1]
        schema = Schema(names[0] if label else None, tuple(features[:cut]), tuple(features[cut:]), time, weight)
        assert Schema.from_json(schema.to_json()) == schema

    def test_every_truncation_is_refused(self) -> None:
        text = INFERRED.to_json()
        for length in range(len(text)):
            with pytest.raises(ValueError, match="whole, valid JSON"):
                Schema.from_json(text[:length])

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"extra": 1}, r"\['extra'\] are unknown, \[\] are missing"),
            ({"version": 2}, "version 1, not 2"),
            ({"format": "other"}, "daes.schema"),
            ({"numerical": "price"}, "numerical must be a list"),
            ({"numerical": [1]}, "numerical must be named by a non-empty string"),
            ({"label": 5}, "label must be named by a non-empty string"),
            ({"categorical": ["price"]}, "numerical and categorical"),
        ],
    )
    def test_refuses(self, change: dict[str, object], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Schema.from_json(json.dumps({**json.loads(INFERRED.to_json()), **change}))

    def test_refuses_lacking_keys_and_other_json(self) -> None:
        stored = json.loads(INFERRED.to_json())
        del stored["time"]
        with pytest.raises(ValueError, match=r"\[\] are unknown, \['time'\]"):
            Schema.from_json(json.dumps(stored))
        with pytest.raises(ValueError, match="JSON object"):
            Schema.from_json("[1, 2]")

    def test_the_stored_form_does_not_change(self) -> None:
        stored = (
            '{"format": "daes.schema", "version": 1, "label": "y", "numerical": ["a"], "categorical": ["b"], '
            '"time": null, "weight": "w"}'
        )
        schema = Schema("y", ("a",), ("b",), weight="w")
        assert Schema.from_json(stored) == schema
        assert json.loads(schema.to_json()) == json.loads(stored)


class TestInfer:
    def test_from_everything_that_has_columns(self, tmp_path: Path) -> None:
        pq.write_table(TABLE, tmp_path / "a.parquet")
        assert infer_schema(TABLE) == INFERRED
        assert infer_schema(TABLE.schema) == INFERRED
        assert infer_schema(TABLE.to_batches()[0]) == INFERRED
        assert infer_schema(tmp_path / "a.parquet") == INFERRED
        assert infer_schema(str(tmp_path / "a.parquet")) == INFERRED
        assert infer_schema(pl.from_arrow(TABLE)) == INFERRED
        assert infer_schema(pd.DataFrame({"y": [1, 0], "c": ["u", "v"]})) == Schema("y", (), ("c",))

    @pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz"])
    def test_from_csv(self, tmp_path: Path, name: str) -> None:
        plain = TABLE.drop_columns(["device", "tax"])
        delimiter = "\t" if ".tsv" in name else ","
        csv.write_csv(plain, tmp_path / "plain", csv.WriteOptions(delimiter=delimiter))
        content = (tmp_path / "plain").read_bytes()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        expected = Schema("Click", ("price", "hour"), ("city", "mobile"), time="at")
        assert infer_schema(tmp_path / name) == expected

    def test_a_named_list_is_the_whole_list_of_its_kind(self) -> None:
        schema = infer_schema(TABLE, categorical=["hour", "city"])
        assert schema == Schema("Click", ("price", "tax"), ("hour", "city"), time="at")
        schema = infer_schema(TABLE, numerical=["price"], categorical=[])
        assert schema == Schema("Click", ("price",), (), time="at")

    def test_named_parts_win(self) -> None:
        schema = infer_schema(TABLE, label="mobile", weight="price", time="hour", exclude=["tax", "at"])
        assert schema == Schema("mobile", ("Click",), ("city", "device"), time="hour", weight="price")

    def test_no_label_is_made_up(self) -> None:
        assert infer_schema(pa.table({"clicks": [1], "a": [1]})).label is None
        text = infer_schema(pa.table({"target": ["url"], "a": [1]}))
        assert text == Schema(None, ("a",), ("target",))

    def test_a_second_label_does_not_become_a_feature(self) -> None:
        table = pa.table({"label": [0], "click": [0], "a": [1.0]})
        with pytest.raises(ValueError, match=r"label must be named.*label, click"):
            infer_schema(table)
        assert infer_schema(table, label="label", exclude=["click"]) == Schema("label", ("a",), ())

    def test_of_several_timestamps_one_is_named(self) -> None:
        table = pa.table({"a": [1.0], "t": pa.array([0], pa.timestamp("s")), "u": pa.array([0], pa.date32())})
        with pytest.raises(ValueError, match=r"time must be named.*t, u"):
            infer_schema(table)
        assert infer_schema(table, time="u") == Schema(None, ("a",), (), time="u")

    def test_a_wrong_name_gets_a_suggestion(self) -> None:
        for part in ("label", "time", "weight"):
            with pytest.raises(ValueError, match=r"no column 'PRIZE'; did you mean 'price'\?"):
                infer_schema(TABLE, **{part: "PRIZE"})  # type: ignore[arg-type]
        for part in ("numerical", "categorical", "exclude"):
            with pytest.raises(ValueError, match=r"no column 'devise'; did you mean 'device'"):
                infer_schema(TABLE, **{part: ["devise"]})  # type: ignore[arg-type]

    def test_one_column_cannot_play_two_parts(self) -> None:
        with pytest.raises(ValueError, match="'price' is numerical and weight"):
            infer_schema(TABLE, numerical=["price"], weight="price")

    @pytest.mark.parametrize("values", [pa.array([["a"]]), pa.array([b"x"]), pa.array([{"k": 1}])])
    def test_a_column_of_another_type_is_named_not_dropped(self, values: pa.Array) -> None:
        table = pa.table({"a": [1.0], "odd": values})
        with pytest.raises(TypeError, match=r"'odd' \("):
            infer_schema(table)
        assert infer_schema(table, exclude=["odd"]) == Schema(None, ("a",), ())
        assert infer_schema(table, numerical=["a"], categorical=[]) == Schema(None, ("a",), ())

    def test_columns_without_a_value_or_a_name_are_left_out(self) -> None:
        table = pa.table({"a": [1.0], "empty": pa.nulls(1), "unnamed_3": [1], "Unnamed: 0": ["x"], "": [0]})
        assert infer_schema(table) == Schema(None, ("a",), ())
        assert infer_schema(table, categorical=["unnamed_3", "empty"]) == Schema(None, ("a",), ("unnamed_3", "empty"))

    def test_refuses_bad_sources(self, tmp_path: Path) -> None:
        with pytest.raises(TypeError, match=r"source must be an Arrow schema.*int"):
            infer_schema(5)
        with pytest.raises(FileNotFoundError, match="there is no file in the directory"):
            infer_schema(tmp_path)
        (tmp_path / "a.xlsx").write_bytes(b"PK")
        with pytest.raises(ValueError, match=r"a\.xlsx does not tell its format"):
            infer_schema(tmp_path / "a.xlsx")
        for name in ("no.parquet", "no.csv"):
            with pytest.raises(FileNotFoundError):
                infer_schema(tmp_path / name)
        with pytest.raises(ValueError, match="'a' occurs twice"):
            infer_schema(pa.schema([("a", pa.int8()), ("a", pa.int8())]))
        with pytest.raises(ValueError, match="at least one feature"):
            infer_schema(pa.schema([]))

    def test_refuses_truncated_files(self, tmp_path: Path) -> None:
        pq.write_table(TABLE, tmp_path / "a.parquet")
        whole = (tmp_path / "a.parquet").read_bytes()
        for length in (0, 3, len(whole) // 2, len(whole) - 1):
            (tmp_path / "cut.parquet").write_bytes(whole[:length])
            with pytest.raises(ValueError, match=r"cut\.parquet is (not a whole|empty, not a) Parquet file"):
                infer_schema(tmp_path / "cut.parquet")
        (tmp_path / "empty.csv").write_text("")
        with pytest.raises(ValueError, match=r"empty\.csv is empty"):
            infer_schema(tmp_path / "empty.csv")


def test_no_such_column_shows_at_most_twenty() -> None:
    message = no_such_column("x", [f"column{number}" for number in range(30)])
    assert "column19, … (30 in all)" in message
    assert "column20" not in message
    assert no_such_column("x", []).endswith("The columns are: none")
