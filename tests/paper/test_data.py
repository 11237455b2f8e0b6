import numpy as np
import pytest

from daes.paper.data import DataSet, column_batches, columns, days
from daes.simulation import AdStream
from daes.stream.csv import CsvSource


def test_folders_of_this_machine_are_not_shown():
    data = DataSet("criteo:/home/someone/secret/train.txt")
    assert "secret" not in data.shown
    assert DataSet("/home/someone/clicks.parquet").shown == "clicks.parquet"
    assert DataSet("/home/someone/clicks.parquet").name == "clicks"


def test_a_description_tells_what_is_simulated(criteo):
    assert DataSet("adstream:500").describe()["simulated"] is True
    assert "imulated" in DataSet("adstream:500").describe()["title"]
    described = criteo.describe(100)
    assert (described["simulated"], described["rows"], described["numerical"]) == (False, 100, 13)


def test_data_without_a_schema_are_refused(tmp_path):
    (tmp_path / "clicks.csv").write_text("click,price\n1,2.0\n")
    with pytest.raises(ValueError, match="schema is known"):
        DataSet(str(tmp_path / "clicks.csv")).open()


@pytest.mark.parametrize("rows", [None, 1, 700, 10**6])
def test_columns_are_those_of_the_stream(criteo, rows):
    whole = criteo.open()
    expected = next(whole.source.iter_batches(whole.schema, 10**6)).numerical[:rows]
    found = columns(criteo, ["I2", "I7"], rows)
    np.testing.assert_array_equal(found["I2"].astype(np.float32), expected[:, 1])
    np.testing.assert_array_equal(found["I7"].astype(np.float32), expected[:, 6])
    batches = list(column_batches(criteo, "I2", rows, 256))
    np.testing.assert_array_equal(np.concatenate(batches), found["I2"])


def test_columns_of_the_simulated_stream():
    stream = AdStream(1000)
    expected = stream.batch(0, 300).numerical[:, stream.schema.numerical.index("price")]
    np.testing.assert_array_equal(columns(DataSet("adstream:1000"), ["price"], 300)["price"], expected)


def test_days(criteo):
    assert days(DataSet("adstream:400000"), 200_001) == pytest.approx(2, abs=0.01)
    assert days(criteo, 3000) == 7
    assert days(criteo, 1500) == 3.5


def criteo_text(path, rows):
    path.write_text("".join("\t".join(["0", *["1"] * 13, *["a"] * 26]) + "\n" for _ in range(rows)))
    return DataSet(f"criteo:{path}")


def test_days_of_a_file_that_does_not_tell_its_length_are_not_known(tmp_path):
    assert days(criteo_text(tmp_path / "train.txt", 30), 20) is None


def test_rows_are_counted_where_only_reading_tells(tmp_path):
    data = criteo_text(tmp_path / "train.txt", 70_000)
    assert data.open().source.num_rows is None
    assert [data.length(rows) for rows in (None, 10, 70_000, 10**6)] == [70_000, 10, 70_000, 70_000]
    assert data.describe(10**6)["rows"] == 70_000


def test_rows_are_counted_once(tmp_path, monkeypatch):
    data = criteo_text(tmp_path / "train.txt", 5)
    reads = []
    genuine = CsvSource.iter_tables
    monkeypatch.setattr(CsvSource, "iter_tables", lambda *args: reads.append(1) or genuine(*args))
    assert [data.length(None), DataSet(data.spec).length(None)] == [5, 5]
    assert len(reads) == 1


def test_fingerprints_tell_data_apart(tmp_path):
    for name in "abc":
        (tmp_path / name).mkdir()
    one, same = (criteo_text(tmp_path / name / "train.txt", 20) for name in "ab")
    longer = criteo_text(tmp_path / "c/train.txt", 20_001)
    longest = criteo_text(tmp_path / "c/more.txt", 20_002)  # the rows that are looked at are the same
    assert one.describe() == same.describe()
    assert len({data.describe()["fingerprint"] for data in (one, longer, longest)}) == 3
    assert longer.describe(20_001)["fingerprint"] == longest.describe(20_001)["fingerprint"]
