import numpy as np
import pyarrow as pa
import pytest

from daes.stream.schema import Schema
from daes.training.data import Data
from daes.training.held import FirstRows, HeldRows, hold

TABLE = pa.table({"click": [0, 1, 1], "price": [0.5, 2.0, 1.0], "hour": [3, 4, 5], "city": ["a", "b", "c"]})


def test_columns_are_inferred_and_what_is_named_wins():
    assert Data.find(TABLE).schema == Schema("click", ("price", "hour"), ("city",))
    assert Data.find(TABLE, categorical=["hour"]).schema == Schema("click", ("price",), ("hour",))
    assert Data.find(TABLE, categorical=["hour", "city"], exclude=["price"], numerical=[]).schema.numerical == ()


def test_a_datasets_own_schema_may_be_changed_in_parts():
    own = Data.find("adstream:100").schema
    assert own.label == "click"
    moved = Data.find("adstream:100", categorical=["device", "user_age"]).schema
    assert moved.categorical == ("device", "user_age")
    assert moved.numerical == tuple(name for name in own.numerical if name != "user_age")
    less = Data.find("adstream:100", exclude=["price", "device"]).schema
    assert "price" not in less.numerical
    assert "device" not in less.categorical
    weighted = Data.find("adstream:100", weight="bid").schema
    assert (weighted.weight, "bid" in weighted.numerical) == ("bid", False)
    assert Data.find("adstream:100", label="discount", needs_label=False).schema.label == "discount"
    with pytest.raises(ValueError, match="there is no column 'prise'; did you mean 'price'"):
        Data.find("adstream:100", numerical=["prise"])


def test_a_label_is_needed_to_learn_and_not_to_look():
    table = TABLE.rename_columns(["clicks", "price", "hour", "city"])
    with pytest.raises(ValueError, match=r"label must be named, .*the columns are: clicks, price, hour, city"):
        Data.find(table)
    assert Data.find(table, needs_label=False).schema.label is None
    assert Data.find(table, label="clicks").schema.label == "clicks"


def test_rows_to_read():
    assert Data.find(TABLE).num_rows == 3
    assert Data.find(TABLE, max_rows=2).num_rows == 2
    assert Data.find(TABLE, max_rows=9).num_rows == 3
    with pytest.raises(ValueError, match="max_rows must be positive"):
        Data.find(TABLE, max_rows=0)


def test_options_reach_the_reader(tmp_path):
    path = tmp_path / "clicks.txt"
    path.write_text("click;price\n1;0.5\n0;x\n")
    with pytest.raises(ValueError, match="x"):
        list(
            Data.find(str(path), numerical=["price"], options={"separator": ";"})
            .open()
            .source.iter_batches(Schema("click", ("price",), ()), 8)
        )
    data = Data.find(str(path), numerical=["price"], options={"separator": ";", "bad_rows": "skip"})
    assert [len(batch) for batch in data.open().source.iter_batches(data.schema, 8)] == [1]


def test_held_rows_are_the_rows(schema, make_rows):
    rows = make_rows(250)
    source = HeldRows(rows, schema)
    assert source.num_rows == 250
    held = hold(source, schema)
    assert held.equals(rows)
    source.seek({"row": 100})
    assert hold(source, schema, max_rows=50).equals(rows[100:150])
    source.seek({"row": 0})
    assert hold(source, schema, max_bytes=1000) is None
    with pytest.raises(ValueError, match="at least one row"):
        hold(HeldRows(rows[:0], schema), schema)
    with pytest.raises(ValueError, match="schema must be the one"):
        next(source.iter_batches(Schema("click", ("price",), ()), 8))


def test_positions_of_held_rows_resume_exactly(schema, make_rows):
    rows = make_rows(250)
    source, other = HeldRows(rows, schema), HeldRows(rows, schema)
    batches = source.iter_batches(schema, 40)
    next(batches)
    next(batches)
    other.seek(source.position())
    rest = [batch.numerical for batch in other.iter_batches(schema, 40)]
    np.testing.assert_array_equal(np.concatenate(rest), rows.numerical[80:])
    assert other.position() == {"row": 250, "batch": 7}


@pytest.mark.parametrize(("count", "sizes"), [(100, [40, 40, 20]), (80, [40, 40]), (0, []), (999, [40] * 6 + [10])])
def test_first_rows(schema, make_rows, count, sizes):
    source = FirstRows(HeldRows(make_rows(250), schema), count)
    assert source.num_rows == min(count, 250)
    assert [len(batch) for batch in source.iter_batches(schema, 40)] == sizes
    assert list(source.iter_batches(schema, 40)) == []


def test_first_rows_as_tables():
    source = FirstRows(Data.find(TABLE).open().source, 2)
    assert [table.num_rows for table in source.iter_tables(None, 2)] == [2]
    source.seek({"row": 1})
    assert [table.column("hour").to_pylist() for table in source.iter_tables(["hour"], 5)] == [[4]]
