import csv
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score

from daes.model import CTRModel
from daes.storage.checkpoint import CheckpointStore
from daes.stream.batch import batch_from_table
from daes.stream.cursor import SourceError
from daes.stream.cursor_source import CursorSource
from daes.stream.dataset import Dataset
from daes.stream.schema import Schema
from daes.training.scoring import evaluate, load_trained, predict

SCHEMA = Schema("click", ("price",), ("city",), time="at")


@pytest.fixture
def table():
    random = np.random.default_rng(0)
    price = random.lognormal(size=1000)
    click = (random.random(1000) < 1 / (1 + price)).astype(int)
    city = pa.array([f"city {number}" for number in random.integers(0, 9, 1000)])
    return pa.table({"id": np.arange(1000), "click": click, "price": price, "city": city, "at": np.arange(1000)})


@pytest.fixture
def model(table):
    torch.manual_seed(0)
    made = CTRModel(SCHEMA, "daes", "fnn", sizes=10)
    batch = batch_from_table(table, SCHEMA)
    optimizer = torch.optim.Adam(made.parameters(), 0.01)
    for _ in range(5):
        optimizer.zero_grad()
        made.loss(batch).backward()
        optimizer.step()
    return made.eval()


def expected(model, table):
    return model.predict_proba(batch_from_table(table, Schema(None, ("price",), ("city",))))


def test_metrics_on_other_rows(model, table):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    metrics = evaluate(model, table, batch_size=300)
    chances, labels = expected(model, table), table["click"].to_numpy()
    low, high = metrics.auc.bounds()
    assert low - 1e-9 <= roc_auc_score(labels, chances) <= high + 1e-9
    assert metrics.compute()["auc"] == pytest.approx(roc_auc_score(labels, chances), abs=1e-3)
    assert metrics.compute()["logloss"] == pytest.approx(log_loss(labels, chances), rel=1e-6)
    assert metrics.count == 1000
    assert evaluate(model, Dataset.open(table, schema=SCHEMA, limit=450), batch_size=300).count == 450
    renamed = table.rename_columns(["id", "clicked", "price", "city", "at"]).drop_columns(["at"])
    assert evaluate(model, renamed, label="clicked", batch_size=300).compute() == metrics.compute()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
@pytest.mark.parametrize("size", [1000, 128])
def test_scores_in_the_order_of_the_rows(model, table, tmp_path, ending, size):
    out = tmp_path / f"scores{ending}"
    rows = []
    written = predict(
        model, table.drop_columns(["click"]), out, keep=["id", "city"], batch_size=size, progress=rows.append
    )
    read = pq.read_table(out) if ending == ".parquet" else pyarrow.csv.read_csv(out)
    assert written.rows == sum(rows) == 1000
    assert read.column_names == ["id", "city", "score"]
    assert read["id"].to_pylist() == list(range(1000))
    assert read["city"].to_pylist() == table["city"].to_pylist()
    np.testing.assert_allclose(read["score"].to_numpy(), expected(model, table), rtol=1e-6)
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_a_part_of_the_rows_and_another_name(model, table, tmp_path):
    out = tmp_path / "scores.parquet"
    assert predict(model, Dataset.open(table, schema=SCHEMA, limit=130), out, column="p", batch_size=100).rows == 130
    read = pq.read_table(out)
    assert (read.column_names, read.num_rows) == (["p"], 130)


def test_a_file_appears_whole_or_not_at_all(model, table, tmp_path):
    out = tmp_path / "scores.parquet"
    out.write_text("older")
    broken = table.set_column(2, "price", pa.array(["x"] * 1000))
    with pytest.raises(TypeError, match=r"rows 1 to 100 of table: column 'price' must hold numbers"):
        predict(model, broken, out, batch_size=100)

    def stop(rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict(model, table, out, batch_size=100, progress=stop)
    assert out.read_text() == "older"
    assert [path.name for path in tmp_path.iterdir()] == ["scores.parquet"]


def test_what_cannot_be_written_is_said_first(model, table, tmp_path):
    with pytest.raises(ValueError, match=r"out must end in .parquet or .csv"):
        predict(model, table, tmp_path / "scores.txt")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        predict(model, table, tmp_path / "no" / "scores.csv")
    with pytest.raises(ValueError, match="there is no column 'ids'; did you mean 'id'"):
        predict(model, table, tmp_path / "scores.csv", keep=["ids"])
    with pytest.raises(ValueError, match="column must not be among those to keep"):
        predict(model, table, tmp_path / "scores.csv", keep=["id"], column="id")
    with pytest.raises(ValueError, match="keep must name every column once, got 'id' more than once"):
        predict(model, table, tmp_path / "scores.parquet", keep=["id", "city", "id"])
    with pytest.raises(ValueError, match="column must be the name of the scores, got ''"):
        predict(model, table, tmp_path / "scores.csv", column="")
    with pytest.raises(ValueError, match="at least one row"):
        predict(model, table.slice(0, 0), tmp_path / "scores.csv")
    assert list(tmp_path.iterdir()) == []


def test_the_data_are_not_overwritten(model, table, tmp_path):
    data, link, other = tmp_path / "day_1.parquet", tmp_path / "link.parquet", tmp_path / "day_2.parquet"
    for path in (data, other):
        pq.write_table(table, path)
    link.symlink_to(data)
    before = data.read_bytes()
    for out in (data, link, tmp_path / ".." / tmp_path.name / "day_1.parquet", other):
        with pytest.raises(ValueError, match="out must not be one of the files read, got"):
            predict(model, str(tmp_path / "day_*.parquet"), out)
    assert (data.read_bytes(), other.read_bytes()) == (before, before)


def test_what_a_link_points_to_is_written(model, table, tmp_path):
    out, link = tmp_path / "scores.csv", tmp_path / "link.csv"
    out.write_text("older")
    link.symlink_to(out)
    predict(model, table, link)
    assert link.is_symlink()
    assert len(out.read_text().splitlines()) == 1001


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_columns_are_kept_as_they_are(model, tmp_path, ending):
    data, out = tmp_path / "today.csv", tmp_path / f"scores{ending}"
    data.write_text(
        'id,zip,price,city,note\n2364757750457144547,00184,1.50,city 1,NA\n2364757750457144548,00010,NA,,"a ""b"", c"\n'
    )
    keep = ["id", "zip", "price", "city", "note"]
    predict(model, str(data), out, keep=keep)
    if ending == ".csv":
        with out.open(newline="") as file:
            rows = [tuple(row) for row in csv.reader(file)][1:]
    else:
        rows = [tuple(row.values()) for row in pq.read_table(out).to_pylist()]
    assert [row[:-1] for row in rows] == [
        ("2364757750457144547", "00184", "1.50", "city 1", "NA"),
        ("2364757750457144548", "00010", "NA", "", 'a "b", c'),
    ]
    read = pa.table({"price": pa.array([1.5, None]), "city": pa.array(["city 1", None])})
    np.testing.assert_allclose([float(row[-1]) for row in rows], expected(model, read), rtol=1e-6)


@pytest.mark.parametrize("extension", [False, True])
def test_a_column_that_a_csv_file_cannot_hold_is_kept_in_a_parquet_file(model, table, tmp_path, extension):
    kept = pa.array([["a", "b"]] * 1000)
    if extension:
        kept = pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((1000, 2)))
    rows = table.append_column("tags", kept)
    with pytest.raises(ValueError, match=r"out must be a \.parquet file to keep 'tags', which is of type"):
        predict(model, rows, tmp_path / "out.csv", keep=["tags"])
    assert not (tmp_path / "out.csv").exists()
    predict(model, rows, tmp_path / "out.parquet", keep=["tags"])
    assert pq.read_table(tmp_path / "out.parquet")["tags"].to_pylist() == kept.to_pylist()


def test_a_bad_row_keeps_its_place_and_has_no_score(model, tmp_path):
    data, out = tmp_path / "today.csv", tmp_path / "scores.csv"
    data.write_text("id,price,city\n1,1.0,a\n2,oops,a\n3,1.0\n4,2.0,b\n")
    with pytest.raises(ValueError, match=r"row 3 of .*today.csv: 3 fields are expected; there are 2"):
        predict(model, str(data), out)
    for size in (1, 3, 100):
        opened = Dataset.open(str(data), schema=SCHEMA, bad_rows="skip")
        written = predict(model, opened, out, keep=["id"], batch_size=size)
        with out.open(newline="") as file:
            ids, scores = zip(*list(csv.reader(file))[1:], strict=True)
        assert [score == "" for score in scores] == [False, True, True, False]
        assert ids == ("1", "2", "", "4")
        assert (written.rows, written.bad_rows.count) == (4, 2)
        assert sorted((bad.row, bad.reason) for bad in written.bad_rows.first) == [
            (2, "column 'price' must be a number, got 'oops'"),
            (3, "3 fields are expected; there are 2"),
        ]


@pytest.mark.parametrize("size", [1, 7, 100])
def test_bad_rows_have_the_places_that_evaluate_gives_them(model, tmp_path, size):
    bad = {"a": {3: "x,c", 9: "1"}, "b": {1: "1,c,d", 2: "x,c", 10: "y,c"}, "c": {}, "d": {5: "1,c,d", 6: "x,c"}}
    for name, rows in bad.items():
        lines = [f"0,{rows.get(number, '1,c')}\n" for number in range(1, 11)]
        (tmp_path / f"{name}.csv").write_text("click,price,city\n" + "".join(lines))
    for what in (tmp_path, tmp_path / "*.csv", tmp_path / "b.csv"):
        opened = Dataset.open(what, schema=replace(SCHEMA, time=None), bad_rows="skip")
        evaluate(model, opened)
        written = predict(model, opened, tmp_path / "scores.parquet", batch_size=size)
        assert written.bad_rows.first == opened.bad_rows.first
        assert written.bad_rows.count == opened.bad_rows.count
        (tmp_path / "scores.parquet").unlink()


def test_all_bad_rows_are_counted(model, tmp_path):
    data = tmp_path / "today.csv"
    data.write_text("price,city\n" + "1.0,a\n" * 2 + "x,a\n" + "1.0\n" * 12_000 + "x,a\n")
    opened = Dataset.open(str(data), schema=SCHEMA, bad_rows="skip")
    written = predict(model, opened, tmp_path / "scores.parquet")
    assert (written.rows, written.bad_rows.count) == (12_004, 12_002)
    assert str(written.bad_rows.first[0]) == f"row 3 of {data}: column 'price' must be a number, got 'x'"
    assert str(written.bad_rows.first[1]) == f"row 4 of {data}: 2 fields are expected; there are 1"
    written = predict(model, opened.head(5), tmp_path / "scores.parquet")
    assert (written.rows, written.bad_rows.count) == (5, 3)


@pytest.mark.parametrize("column", ["score", "a,b"])
def test_scores_alone_keep_their_places_in_a_csv_file(model, tmp_path, column):
    data, out = tmp_path / "today.csv", tmp_path / "scores.csv"
    data.write_text("price,city\n1.0,a\noops,a\n2.0,b\n")
    predict(model, Dataset.open(str(data), schema=SCHEMA, bad_rows="skip"), out, column=column, batch_size=1)
    read = pyarrow.csv.read_csv(out)
    assert read.column_names == [column]
    assert [score is None for score in read[column].to_pylist()] == [False, True, False]
    scores = pd.read_csv(out)[column]
    assert scores.isna().tolist() == [False, True, False]
    rows = Dataset.open(str(data), schema=SCHEMA, bad_rows="skip")
    predict(model, rows, tmp_path / "scores.parquet", column=column, batch_size=1)
    written = pq.read_table(tmp_path / "scores.parquet")[column].to_pandas()
    pd.testing.assert_series_equal(scores, written, rtol=1e-15)


def test_a_run_or_a_saved_model(model, tmp_path):
    model.save_pretrained(tmp_path / "saved")
    assert load_trained(tmp_path / "saved").config == model.config
    run = tmp_path / "my run"
    run.mkdir()
    (run / "config.json").write_text('{"format": "daes.run", "version": 1}')
    with pytest.raises(FileNotFoundError, match="has no model yet"):
        load_trained(run)
    (run / "model").mkdir()  # left by a disk that was full when the model was written
    with pytest.raises(FileNotFoundError, match=f"has no model yet: `daes train --out '{run}' --resume`"):
        load_trained(run)
    model.save_pretrained(run / "model")
    assert load_trained(run).config == model.config
    with pytest.raises(FileNotFoundError, match="no saved model in"):
        load_trained(tmp_path / "nothing")


def test_a_run_that_has_gone_on_since_its_model_was_saved_says_so(model, tmp_path, caplog):
    run = tmp_path / "run"
    model.save_pretrained(run / "model")
    (run / "config.json").write_text('{"format": "daes.run", "version": 1}')
    (run / "metrics.json").write_text('{"batches": 20}')
    with CheckpointStore(run / "checkpoints") as store:
        store.save(20, {})
        load_trained(run)
        assert not caplog.text
        store.save(30, {})
    load_trained(run)
    assert "is that of step 20; the run has gone on to step 30, and its model is written at the end" in caplog.text


def test_types_may_differ_among_the_files(model, table, tmp_path, monkeypatch):
    monkeypatch.setattr(CursorSource, "_rows_at_once", 1)
    kinds = (pa.int32(), pa.int64(), pa.string())
    for number, kind in enumerate(kinds):
        rows = table.slice(300 * number, 300)
        pq.write_table(rows.set_column(0, "id", rows["id"].cast(kind)), tmp_path / f"{number}.parquet")
    predict(model, tmp_path / "*.parquet", tmp_path / "scores.csv", keep=["id"], batch_size=100)
    assert pyarrow.csv.read_csv(tmp_path / "scores.csv")["id"].to_pylist() == list(range(900))
    rows = table.slice(0, 10)
    pq.write_table(rows.set_column(0, "id", pa.array(["x"] * 10)), tmp_path / "4.parquet")
    with pytest.raises(SourceError, match=r"a column to keep must be of one type in all files: .*'x'"):
        predict(model, tmp_path / "*.parquet", tmp_path / "other.csv", keep=["id"], batch_size=100)


def test_bytes_are_kept_in_csv_only_if_they_are_text(model, table, tmp_path):
    for start, written in ((b"n", True), (b"\xff", False)):
        keys = pa.array([start + b"%d" % number for number in range(len(table))])
        rows = table.append_column("key", keys)
        predict(model, rows, tmp_path / "scores.parquet", keep=["key"])
        assert pq.read_table(tmp_path / "scores.parquet")["key"].to_pylist() == keys.to_pylist()
        if written:
            predict(model, rows, tmp_path / "scores.csv", keep=["key"])
            assert (tmp_path / "scores.csv").read_bytes().split(b"\n")[1].startswith(b'"n0",')
        else:
            with pytest.raises(
                SourceError, match=r"out must be a \.parquet file to keep bytes that are not UTF-8 text"
            ):
                predict(model, rows, tmp_path / "scores.csv", keep=["key"])
