import json
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daes.stream.csv import CsvSource
from daes.stream.cursor import BatchError, SourceError
from daes.stream.dataset import Dataset
from daes.stream.files import DataFile
from daes.stream.parquet import ParquetSource
from daes.stream.prefetch import Prefetch
from daes.stream.schema import Schema
from daes.stream.source import BatchSource, TableSource

TABLE = pa.table({"click": [0, 1, 1], "price": [0.5, 2.0, 1.0], "hour": [3, 4, 5], "city": ["a", "b", "c"]})


def test_columns_are_inferred_and_what_is_named_wins():
    assert Dataset.open(TABLE).schema == Schema("click", ("price", "hour"), ("city",))
    assert Dataset.open(TABLE, categorical=["hour"]).schema == Schema("click", ("price",), ("hour",))
    assert Dataset.open(TABLE, categorical=["hour", "city"], exclude=["price"], numerical=[]).schema.numerical == ()


def test_a_datasets_own_schema_may_be_changed_in_parts():
    own = Dataset.open("adstream:100").schema
    assert own.label == "click"
    moved = Dataset.open("adstream:100", categorical=["device", "user_age"]).schema
    assert moved.categorical == ("device", "user_age")
    assert moved.numerical == tuple(name for name in own.numerical if name != "user_age")
    less = Dataset.open("adstream:100", exclude=["price", "device"]).schema
    assert "price" not in less.numerical
    assert "device" not in less.categorical
    weighted = Dataset.open("adstream:100", weight="bid").schema
    assert (weighted.weight, "bid" in weighted.numerical) == ("bid", False)
    assert Dataset.open("adstream:100", label="discount", needs_label=False).schema.label == "discount"
    with pytest.raises(ValueError, match="there is no column 'prise'; did you mean 'price'"):
        Dataset.open("adstream:100", numerical=["prise"])


@pytest.mark.parametrize("data", [TABLE, "adstream:100"], ids=["inferred", "its own"])
@pytest.mark.parametrize("role", ["numerical", "categorical", "weight"])
def test_a_column_that_has_a_role_cannot_be_excluded_too(data, role):
    named = "price" if role == "weight" else ["price"]
    with pytest.raises(ValueError, match=r"exclude must name columns without another role, got 'price'$"):
        Dataset.open(data, **{role: named}, exclude=["price"])


def test_a_label_is_needed_to_learn_and_not_to_look():
    table = TABLE.rename_columns(["clicks", "price", "hour", "city"])
    with pytest.raises(ValueError, match=r"label must be named, .*the columns are: clicks, price, hour, city"):
        Dataset.open(table)
    assert Dataset.open(table, needs_label=False).schema.label is None
    assert Dataset.open(table, label="clicks").schema.label == "clicks"


def test_rows_to_read():
    assert Dataset.open(TABLE).num_rows == 3
    assert Dataset.open(TABLE, limit=2).num_rows == 2
    assert Dataset.open(TABLE, limit=9).num_rows == 3
    assert Dataset.open(TABLE, limit=2).head(9).limit == 2
    assert Dataset.open(TABLE, limit=2).head(1).num_rows == 1
    assert Dataset.open(TABLE, limit=2).head(None).num_rows == 2
    with pytest.raises(ValueError, match="limit must be positive, got 0"):
        Dataset.open(TABLE, limit=0)


def test_options_reach_the_reader(tmp_path):
    path = tmp_path / "clicks.txt"
    path.write_text("click;price\n1;0.5\n0;x\n")
    data = Dataset.open(str(path), numerical=["price"], separator=";")
    with pytest.raises(SourceError, match="x"):
        list(data.iter_batches(data.schema, 8))
    data = Dataset.open(str(path), numerical=["price"], separator=";", bad_rows="skip")
    assert [len(batch) for batch in data.iter_batches(data.schema, 8)] == [1]
    with pytest.raises(TypeError, match="an open Dataset takes no options, got separator"):
        Dataset.open(data, separator=",")


def test_an_open_dataset_may_be_given_another_schema_and_limit():
    data = Dataset.open(TABLE, limit=2)
    assert Dataset.open(data).schema == data.schema
    other = Dataset.open(data, categorical=["hour"], limit=1)
    assert (other.schema.categorical, other.schema.numerical, other.num_rows) == (("hour",), ("price",), 1)
    assert Dataset.open(data, schema=Schema(None, ("hour",), ())).schema.columns == ("hour",)


@pytest.mark.parametrize(("limit", "sizes"), [(100, [40, 40, 20]), (80, [40, 40]), (999, [40] * 6 + [10])])
@pytest.mark.parametrize("prefetch", [0, 1])
def test_the_limit_is_exact(tmp_path, limit, sizes, prefetch):
    path = tmp_path / "rows.csv"
    path.write_text("click,price\n" + "".join(f"{row % 2},{row}\n" for row in range(250)))
    data = Dataset.open(path, limit=limit)
    source = data.from_start(prefetch=prefetch)
    batches = list(source.iter_batches(data.schema, 40))
    assert [len(batch) for batch in batches] == sizes
    np.testing.assert_array_equal(np.concatenate([batch.numerical[:, 0] for batch in batches]), range(min(limit, 250)))
    assert list(source.iter_batches(data.schema, 40)) == []
    # What stopped at the limit goes on with the row after it.
    longer = Dataset.open(path)
    longer.seek(source.position())
    rest = [batch.numerical[:, 0] for batch in longer.iter_batches(data.schema, 8)]
    np.testing.assert_array_equal(np.concatenate([np.empty(0), *rest]), range(min(limit, 250), 250))


@pytest.mark.parametrize(("rank", "rows"), [(0, [0, 1, 4]), (1, [2, 3])])
def test_the_limit_counts_the_rows_of_all_shards(rank, rows):
    table = pa.table({"click": [0] * 9, "price": np.arange(9.0)})
    data = Dataset.open(table, limit=5, shard=(rank, 2))
    assert [value for batch in data.iter_batches(data.schema, 2) for value in batch.numerical[:, 0]] == rows


def test_the_first_rows_as_tables():
    data = Dataset.open(TABLE, limit=2)
    assert [table.num_rows for table in data.iter_tables(None, 5)] == [2]
    data.seek({"row": 1})
    assert [table.column("hour").to_pylist() for table in data.iter_tables(["hour"], 5)] == [[4]]


def test_text_is_parsed_by_the_schema(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("click,hour\n1,007\n0,8\n")
    numbers, words = Dataset.open(path), Dataset.open(path, categorical=["hour"])
    assert next(numbers.iter_tables(["hour"], 2))["hour"].to_pylist() == [7.0, 8.0]
    assert next(words.iter_tables(["hour"], 2))["hour"].to_pylist() == ["007", "8"]
    other = numbers.with_schema(words.schema)
    assert next(other.iter_tables(["hour"], 2))["hour"].to_pylist() == ["007", "8"]
    assert next(numbers.from_start().iter_tables(["hour"], 2))["hour"].to_pylist() == [7.0, 8.0]


def test_readers_of_one_source_have_positions_of_their_own():
    data = Dataset.open(TABLE)
    first = next(data.iter_batches(data.schema, 2))
    again = next(data.from_start().iter_batches(data.schema, 2))
    assert again.equals(first)
    assert [batch.numerical[0, 0] for batch in data.iter_batches(data.schema, 2)] == [1.0]


def test_a_sample_is_the_first_rows_and_leaves_the_position():
    data = Dataset.open("adstream:500")
    expected = next(data.iter_batches(data.schema, 300))
    assert data.position()["row"] == 300
    assert data.sample(300).equals(expected)
    assert data.sample(300, batch_size=70).equals(expected)
    assert data.position()["row"] == 300
    assert len(data.sample(10**6)) == 500
    assert len(data.head(20).sample(100)) == 20
    with pytest.raises(ValueError, match="at least one row that can be read; table has none"):
        Dataset.open(TABLE.slice(0, 0)).sample(10)


def test_a_sample_leaves_out_bad_batches_where_that_is_the_policy():
    table = pa.table({"click": [0, 1, 2, 1, 0, 1], "price": np.arange(6.0)})
    data = Dataset.open(table)
    message = "row 3 of the data: label column 'click' must hold 0 and 1 only, got 2; --label-map VALUE=1"
    with pytest.raises(BatchError, match=message):
        data.sample(6, batch_size=2)
    assert data.sample(6, batch_size=2, skip_bad_batches=True).numerical[:, 0].tolist() == [0, 1, 4, 5]
    assert data.sample(3, batch_size=2, skip_bad_batches=True).numerical[:, 0].tolist() == [0, 1, 4]
    assert data.in_memory() is data


def test_rows_in_memory_are_the_rows():
    data = Dataset.open("adstream:500", limit=300)
    rows = data.sample(300)
    in_memory = data.in_memory()
    assert isinstance(in_memory.source, BatchSource)
    assert in_memory is data.in_memory()
    assert in_memory.sample(300).equals(rows)
    assert (in_memory.num_rows, in_memory.name, in_memory.notes) == (300, data.name, data.notes)
    assert isinstance(in_memory.from_start(prefetch=2), Dataset)
    large = data.head(None)
    assert large.in_memory(max_bytes=1000) is large


def test_rows_in_memory_give_the_columns_that_are_asked_for():
    data = Dataset.open("adstream:500")
    less = Schema(None, data.schema.numerical[2:4], data.schema.categorical[:1])
    expected = data.with_schema(less).sample(500)
    found = data.in_memory().with_schema(less).sample(500)
    assert found.equals(expected)
    assert found.numerical.flags.c_contiguous
    with pytest.raises(ValueError, match="the rows in memory have no numerical column 'prise'"):
        data.in_memory().with_schema(Schema(None, ("prise",), ())).sample(5)
    with pytest.raises(TypeError, match="cannot be read as tables"):
        data.in_memory().iter_tables(None, 5)
    with pytest.raises(TypeError, match="have no Arrow schema"):
        _ = data.in_memory().arrow_schema


def test_positions_in_memory_resume_exactly(schema, make_rows):
    rows = make_rows(250)
    source, other = BatchSource(rows, schema), BatchSource(rows, schema)
    batches = source.iter_batches(schema, 40)
    next(batches)
    next(batches)
    other.seek(source.position())
    rest = [batch.numerical for batch in other.iter_batches(schema, 40)]
    np.testing.assert_array_equal(np.concatenate(rest), rows.numerical[80:])
    assert other.position() == {"row": 250, "batch": 7}


def test_rows_are_counted_once_where_only_reading_tells(tmp_path, monkeypatch):
    path = tmp_path / "rows.csv"
    path.write_text("click,price\n" + "1,2\n" * 70_000)
    data = Dataset.open(path)
    reads = []
    genuine = CsvSource.iter_tables
    monkeypatch.setattr(CsvSource, "iter_tables", lambda *args: reads.append(1) or genuine(*args))
    assert data.num_rows is None
    assert [data.count_rows(), data.count_rows(), len(reads)] == [70_000, 70_000, 1]
    assert [data.head(rows).count_rows() for rows in (10, 70_000, 10**6)] == [10, 70_000, 70_000]
    assert Dataset.open("adstream:500", limit=20).count_rows() == 20


def test_fingerprints_tell_data_apart(tmp_path):
    data = Dataset.open("adstream:20000")
    others = [
        data.head(19_999),
        data.with_schema(Schema("click", data.schema.numerical, ())),
        Dataset.open("adstream:20000", seed=1),
    ]
    assert len({one.fingerprint() for one in (data, *others)}) == 4
    assert Dataset.open("adstream:30000", limit=20_000).fingerprint() == data.fingerprint()
    longer = tmp_path / "longer.csv"
    shorter = tmp_path / "shorter.csv"
    shorter.write_text("click,price\n" + "1,2\n" * 20_000)
    longer.write_text("click,price\n" + "1,2\n" * 20_001)
    assert Dataset.open(longer).fingerprint() != Dataset.open(shorter).fingerprint()


@pytest.mark.parametrize("what", ["adstream:300", TABLE, "rows.csv"])
def test_a_dataset_is_opened_anew_where_it_is_unpickled(tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("click,hour\n1,007\n0,8\n0,9\n")
    numerical = ["hour"] if isinstance(what, pa.Table) else None
    data = Dataset.open(what, numerical=numerical, limit=2)
    data.in_memory()
    sent = pickle.dumps(data)
    copy = pickle.loads(sent)
    assert copy._source is None
    assert (copy.schema, copy.name, copy.notes, copy.limit) == (data.schema, data.name, data.notes, data.limit)
    assert copy.fingerprint() == data.fingerprint()
    assert copy.sample(9).equals(data.sample(9))


def test_a_description_is_of_plain_values(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("click,price\n1,2\n")
    described = Dataset.open(path, limit=5, bad_rows="skip").describe()
    assert json.loads(json.dumps(described)) == {
        "what": str(path),
        "name": "rows.csv",
        "rows": None,
        "notes": [],
        "options": {"bad_rows": "skip"},
        "limit": 5,
    }
    assert Dataset.open(TABLE, limit=1).describe()["rows"] == 3


def test_rows_are_put_in_the_order_of_their_time(tmp_path):
    random = np.random.default_rng(0)
    at = random.permutation(2000) // 2
    table = pa.table({"click": random.integers(0, 2, 2000), "price": np.arange(2000.0), "at": at})
    data = Dataset.open(table, time="at")
    ordered, found = data.in_time_order()
    late = int((at[1:] < np.maximum.accumulate(at)[:-1]).sum())
    assert found.startswith(f"{late:,} of 2,000 rows are earlier than a row before them")
    want = np.argsort(at, kind="stable")
    assert ordered.sample(2000).numerical[:, 0].tolist() == want.tolist()
    assert ordered.notes == ("The rows were sorted by 'at'.",)
    again, sentence = Dataset.open(table.take(want), time="at").in_time_order()
    assert (sentence, again.notes) == ("the rows are in the order of 'at'", ())
    assert data.in_time_order(max_bytes=100)[0] is data
    assert "too many to sort in memory" in data.in_time_order(max_bytes=100)[1]
    assert Dataset.open(table, exclude=["at"]).in_time_order()[1] is None
    path = tmp_path / "clicks.parquet"
    pq.write_table(table, path)
    sent = pickle.loads(pickle.dumps(Dataset.open(str(path), time="at").in_time_order()[0]))
    assert sent.sample(2000).numerical[:, 0].tolist() == want.tolist()


def test_a_bad_row_takes_few_others_from_a_fingerprint_and_is_named_where_nothing_is_left():
    labels, prices = [0, 1] * 200, [float(i) for i in range(400)]
    good = Dataset.open(pa.table({"click": labels, "price": prices}))
    bad = Dataset.open(pa.table({"click": [*labels[:351], 2, *labels[352:]], "price": prices}))
    assert bad.fingerprint() != good.fingerprint()
    with pytest.raises(BatchError, match="label column 'click' must hold 0 and 1 only, got 2"):
        bad.sample(400, batch_size=400, skip_bad_batches=True)


def test_no_value_in_any_column_is_said():
    with pytest.raises(ValueError, match="at least one column must have a value, got none in any row: price, city"):
        Dataset.open(pa.table({"click": [0, 1], "price": pa.nulls(2), "city": pa.nulls(2)}))


def test_columns_that_only_later_files_have_are_named_by_a_warning(tmp_path, recwarn):
    (tmp_path / "1.csv").write_text("click,price\n1,0.5\n0,2\n")
    (tmp_path / "2.csv").write_text("click,price,,age\n1,0.5,x,3\n0,2,x,4\n")
    (tmp_path / "3.csv").write_text("")  # cannot be read: that is said when its turn comes
    sentence = r"2\.csv has columns that are not used, since the first file lacks them: 'age'$"
    with pytest.warns(UserWarning, match=sentence):
        assert Dataset.open(tmp_path).schema.columns == ("click", "price")
    with pytest.warns(UserWarning, match=sentence):
        Dataset.open(tmp_path, numerical=["price"])
    recwarn.clear()
    Dataset.open(tmp_path, schema=Schema("click", ("price",), ()))
    Dataset.open(tmp_path, numerical=["price"], categorical=[])
    Dataset.open(tmp_path / "[1-1].csv")
    Dataset.open(tmp_path, exclude=["age"])
    assert not recwarn.list


def test_of_many_files_few_are_compared(tmp_path, monkeypatch):
    for number in range(100):
        more = {"age": [3]} if number == 99 else {f"only_{number}": [3]} if number else {}
        pq.write_table(pa.table({"click": [1], "price": [0.5], **more}), tmp_path / f"{number}.parquet")
    source = ParquetSource(tmp_path)
    opened = []
    genuine = DataFile.open
    monkeypatch.setattr(DataFile, "open", lambda file: opened.append(file.name) or genuine(file))
    found = source.later_columns()
    assert len(found) == len(opened) - 1 <= 16
    assert found["age"].endswith("99.parquet")


def test_a_source_of_ones_own_has_no_shards():
    table = TableSource(pa.table({"click": [0, 1], "price": [0.5, 2.0]}))
    with pytest.raises(TypeError, match=r"a Prefetch cannot be divided into shards, got \(0, 2\)"):
        Dataset.open(Prefetch(table, 2), shard=(0, 2))
    assert [len(batch) for batch in Dataset.open(table, shard=(0, 2)).batches(1)] == [1]


def test_a_column_of_another_role_is_not_taken_for_a_label_of_text():
    table = pa.table({"x": [1.0, 2.0], "label": [0, 1]})
    for other in ({"time": "label"}, {"numerical": ["label"]}, {"exclude": ["label"]}):
        with pytest.raises(ValueError, match=r"label must be named, .*the columns are: x, label$"):
            Dataset.open(table, **other)
