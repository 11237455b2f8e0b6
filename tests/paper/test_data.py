import numpy as np
import pytest

from daes.paper.data import columns, days, describe, open_dataset, without_folders
from daes.simulation import AdStream
from daes.stream.dataset import Dataset


def test_folders_of_this_machine_are_not_shown():
    assert without_folders("criteo:/home/someone/secret/train.txt") == "criteo:train.txt"
    assert without_folders("adstream:5000") == "adstream:5000"
    assert without_folders("flights") == "flights"


def test_a_description_tells_what_is_simulated(criteo):
    assert describe(open_dataset("adstream:500"))["simulated"] is True
    assert "imulated" in describe(open_dataset("adstream:500"))["title"]
    described = describe(criteo.head(100))
    assert (described["simulated"], described["rows"], described["numerical"]) == (False, 100, 13)


def test_data_without_a_schema_are_refused(tmp_path):
    (tmp_path / "clicks.csv").write_text("click,price\n1,2.0\n")
    with pytest.raises(ValueError, match=r"schema is known \(criteo:PATH, automl:PATH, flights, adstream\[:ROWS\]\)"):
        open_dataset(str(tmp_path / "clicks.csv"))


@pytest.mark.parametrize("rows", [None, 1, 700, 10**6])
def test_columns_are_those_of_the_stream(criteo, rows):
    expected = next(criteo.from_start().iter_batches(criteo.schema, 10**6)).numerical[:rows]
    data = criteo.head(rows)
    found = columns(data, ["I2", "I7"])
    np.testing.assert_array_equal(found["I2"].astype(np.float32), expected[:, 1])
    np.testing.assert_array_equal(found["I7"].astype(np.float32), expected[:, 6])


def test_columns_of_the_simulated_stream():
    stream = AdStream(1000)
    expected = stream.batch(0, 300).numerical[:, stream.schema.numerical.index("price")]
    np.testing.assert_array_equal(columns(Dataset.open("adstream:1000", limit=300), ["price"])["price"], expected)


def test_days(criteo):
    assert days(Dataset.open("adstream:400000", limit=200_001)) == pytest.approx(2, abs=0.01)
    assert days(criteo) == 7
    assert days(criteo.head(1500)) == 3.5


def criteo_text(path, rows):
    path.write_text("".join("\t".join(["0", *["1"] * 13, *["a"] * 26]) + "\n" for _ in range(rows)))
    return Dataset.open(f"criteo:{path}")


def test_days_of_a_file_that_does_not_tell_its_length_are_not_known(tmp_path):
    assert days(criteo_text(tmp_path / "train.txt", 30).head(20)) is None


def test_descriptions_tell_data_apart(tmp_path):
    for name in "abc":
        (tmp_path / name).mkdir()
    one, same = (criteo_text(tmp_path / name / "train.txt", 20) for name in "ab")
    longer = criteo_text(tmp_path / "c/train.txt", 20_001)
    longest = criteo_text(tmp_path / "c/more.txt", 20_002)  # the rows that are looked at are the same
    assert describe(one) == describe(same)
    assert len({describe(data)["fingerprint"] for data in (one, longer, longest)}) == 3
    assert describe(longer.head(20_001))["fingerprint"] == describe(longest.head(20_001))["fingerprint"]
