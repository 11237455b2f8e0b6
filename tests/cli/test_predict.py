import errno
import gzip
import io
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pandas as pd
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from daes.stream.batch import batch_from_table
from daes.stream.schema import Schema
from daes.training.scoring import load_trained


def expected(run, clicks):
    model = load_trained(run)
    schema = Schema(None, model.schema.numerical, model.schema.categorical)
    return model.predict_proba(batch_from_table(pq.read_table(clicks), schema))


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_file_in_file_out(daes, clicks, trained, tmp_path, ending):
    out = tmp_path / f"scores{ending}"
    result = daes("predict", trained, clicks, "--out", out, "--keep", "id,click", "--batch-size", "128")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "wrote 1,200 scores" in result.stderr
    table = pq.read_table(out) if ending == ".parquet" else pyarrow.csv.read_csv(out)
    assert table.column_names == ["id", "click", "score"]
    assert table["id"].to_pylist() == [f"row {number}" for number in range(1200)]
    np.testing.assert_allclose(table["score"].to_numpy(), expected(trained, clicks), rtol=1e-5)


def test_csv_data_without_a_label(daes, clicks, trained, tmp_path):
    path = tmp_path / "today.csv"
    pyarrow.csv.write_csv(pq.read_table(clicks).drop_columns(["click"]), path)
    result = daes("predict", trained, path, "--out", tmp_path / "s.parquet", "--column", "p", "--limit", "50", "--json")
    assert result.json["rows"] == 50
    scores = pq.read_table(tmp_path / "s.parquet")["p"].to_numpy()
    np.testing.assert_allclose(scores, expected(trained, clicks)[:50], rtol=1e-5)


def test_all_columns_that_are_missing_are_named(refused, trained, tmp_path):
    (tmp_path / "few.csv").write_text("click,price,town\n1,2.5,Bern\n")
    said = refused("predict", trained, tmp_path / "few.csv", "--keep", "prize", "--out", tmp_path / "scores.csv")
    assert "there are no columns 'age', 'city', 'device' and 'prize' (did you mean 'price'?). The columns are" in said


def test_wrong_input_is_one_sentence(refused, clicks, trained, tmp_path):
    cases = [
        (("predict", trained, clicks, "--out", tmp_path / "s.txt"), "out must end in .parquet or .csv"),
        (("predict", trained, clicks, "--out", tmp_path / "no" / "s.csv"), "there is no folder"),
        (("predict", tmp_path, clicks, "--out", tmp_path / "s.csv"), "no saved model in"),
        (("predict", trained, clicks, "--out", tmp_path / "s.csv", "--keep", "ids"), "there is no column 'ids'"),
        (("predict", trained, "nothing.csv", "--out", tmp_path / "s.csv"), "there is no file"),
        (("predict", trained, clicks), "--out"),
        (("predict", trained, clicks, "--out", clicks), "out must not be one of the files read"),
        (("predict", trained, "adstream:100", "--out", tmp_path / "s.csv"), "there is no column 'age'"),
    ]
    for arguments, sentence in cases:
        assert sentence in refused(*arguments), arguments
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_full_disk_is_named_with_the_file(refused, clicks, trained, tmp_path, monkeypatch, ending):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("daes.storage.durable.os.fsync", full)
    out = tmp_path / f"scores.{ending}"
    out.write_text("old")
    assert refused("predict", trained, clicks, "--out", out, code=1) == f"daes: {out}: No space left on device\n"
    assert (list(tmp_path.iterdir()), out.read_text()) == ([out], "old")


def test_rows_that_cannot_be_read_are_counted(daes, trained, tmp_path):
    path, out = tmp_path / "today.csv", tmp_path / "s.csv"
    path.write_text("id,price,age,city,device\n007,1,20,a,phone\n008,x,20,a,phone\n")
    result = daes("predict", trained, path, "--out", out, "--keep", "id", "--bad-rows", "skip", "--json")
    assert (result.json["rows"], result.json["bad_rows"]) == (2, 1)
    assert f"1 row has no score; row 2 of {path}: column 'price' must be a number, got 'x'" in result.stderr
    lines = out.read_text().splitlines()
    assert [line.split(",")[0].strip('"') for line in lines] == ["id", "007", "008"]
    assert lines[2].endswith(",")


def test_a_csv_file_and_its_parquet_twin_have_the_same_scores(daes, tmp_path):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "click": random.integers(0, 2, 300),
            "price": random.lognormal(size=300),
            "member": random.random(300) < 0.5,
            "shop": np.where(random.random(300) < 0.1, np.nan, random.integers(0, 9, 300)),
            "day": pd.to_datetime("2024-01-01") + pd.to_timedelta(random.integers(0, 9, 300), "h"),
        }
    )
    frame.to_parquet(tmp_path / "clicks.parquet", index=False)
    frame.to_csv(tmp_path / "clicks.csv", index=False)
    for number, name in enumerate(("clicks.csv", "clicks.parquet")):
        run = tmp_path / f"run {number}"
        options = ("--numerical", "price", "--categorical", "member,shop,day", "--batch-size", "100", "--no-report")
        assert daes("train", tmp_path / name, *options, "--backbone", "fnn", "--out", run).exit_code == 0
        daes("predict", run, tmp_path / name, "--out", tmp_path / f"{number} same.parquet")
    daes("predict", run, tmp_path / "clicks.csv", "--out", tmp_path / "crossed.parquet")
    scores = [
        pq.read_table(tmp_path / f"{name}.parquet")["score"].to_pylist() for name in ("0 same", "1 same", "crossed")
    ]
    assert scores[0] == scores[1] == scores[2]
    assert len(set(scores[0])) > 250


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_from_standard_input_to_standard_output(clicks, trained, tmp_path, ending):
    path = tmp_path / f"today{ending}"
    (pq.write_table if ending == ".parquet" else pyarrow.csv.write_csv)(pq.read_table(clicks), path)
    command = [sys.executable, "-m", "daes", "predict", str(trained), "-", "--out", "-", "--keep", "id"]
    with path.open("rb") as data:
        done = subprocess.run([*command, "--batch-size", "500"], stdin=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    table = pyarrow.csv.read_csv(io.BytesIO(done.stdout))
    assert table["id"].to_pylist() == [f"row {number}" for number in range(1200)]
    np.testing.assert_allclose(table["score"].to_numpy(), expected(trained, clicks), rtol=1e-5)


def test_standard_output_is_for_one_thing(refused, clicks, trained):
    assert "--json and --out - both write" in refused("predict", trained, clicks, "--out", "-", "--json")


def scores_of(daes, run, path, *options):
    """What `daes predict` writes."""
    out = run.with_name("scores.csv")
    assert daes("predict", run, path, "--out", out, *options).exit_code == 0
    return out.read_text()


def test_what_was_missing_in_training_is_missing_in_scoring(daes, tmp_path):
    rows = [f"{n % 2},{-999 if n % 3 else n % 7},{'unknown' if n % 5 else 'Bern'}\n" for n in range(300)]
    data = tmp_path / "clicks.csv"
    data.write_text("click,price,city\n" + "".join(rows))
    run, said = tmp_path / "run", ("--missing=-999,unknown",)
    assert daes("train", data, "--out", run, *said, "--no-report", "--batch-size", "50").exit_code == 0

    scores = partial(scores_of, daes, run)
    assert scores(data) == scores(data, *said) != scores(data, "--missing", "NONE")
    pq.write_table(pyarrow.table({"price": [-999.0, None], "city": ["unknown", None]}), tmp_path / "typed.parquet")
    assert len(set(scores(tmp_path / "typed.parquet").split())) == 3
    told = [daes("evaluate", run, data, "--json", *options).json["metrics"] for options in ((), said)]
    assert told[0] == told[1]
    following = [("train", data, "--from", run, "--json", "--out", tmp_path / name) for name in ("1", "2")]
    assert daes(*following[0]).json["metrics"] == daes(*following[1], *said).json["metrics"]


def test_csv_files_are_read_as_in_training(daes, refused, tmp_path):
    rows = [f"{'yes' if n % 2 else 'no'};{n % 7},5;{'Bern' if n % 5 else chr(34) + 'Basel'}\n" for n in range(300)]
    data, named = tmp_path / "clicks.csv", tmp_path / "named.csv"
    data.write_text("".join(rows))
    named.write_text("click;price;city\n" + "".join(rows))
    labels = ("--label-map", "yes=1", "--label-map", "no=0")
    said = ("--separator", ";", "--decimal", ",", "--no-quotes", "--names", "click,price,city", *labels)
    run = tmp_path / "run"
    assert daes("train", data, "--out", run, *said, "--label", "click", "--no-report").exit_code == 0

    scores = partial(scores_of, daes, run)
    assert scores(data) == scores(data, *said) == scores(named) == scores(named, "--header")
    unlabelled = tmp_path / "unlabelled.csv"
    unlabelled.write_text(
        "city;price\n" + "".join(f"{city};{price}\n" for _, price, city in (row.strip().split(";") for row in rows))
    )
    assert scores(data) == scores(unlabelled)
    told = [daes("evaluate", run, data, "--json", *options).json["metrics"] for options in ((), said)]
    assert told[0] == told[1]
    following = [("train", data, "--from", run, "--json", "--out", tmp_path / name) for name in ("1", "2")]
    assert daes(*following[0]).json["metrics"] == daes(*following[1], *said).json["metrics"]
    assert "3 fields are expected" in refused(
        "predict", run, data, "--out", tmp_path / "scores.csv", "--separator", "|"
    )
    assert "'1' or '0'" in refused("evaluate", run, data, "--label-map", "1=1", "--label-map", "0=0")
    comma = tmp_path / "comma.csv"
    comma.write_text(data.read_text().replace(",5", ".5").replace('"Basel', '"Basel"'))
    other = scores(comma, "--decimal", ".", "--quotes")
    assert other == scores(comma, "--decimal", ".", "--quotes", "--no-header")
    assert other != scores(comma, "--decimal", ".")


def test_the_label_map_of_training_holds_for_parquet(daes, tmp_path):
    path, run = tmp_path / "clicks.parquet", tmp_path / "run"
    pq.write_table(pyarrow.table({"click": ["yes", "no"] * 100, "price": np.arange(200.0)}), path)
    labels = ("--label", "click", "--label-map", "yes=1", "--label-map", "no=0")
    assert daes("train", path, "--out", run, *labels, "--no-report").exit_code == 0
    texts = daes("evaluate", run, path, "--json").json["metrics"]
    for plain in ([1, 0], [True, False]):
        pq.write_table(pyarrow.table({"click": plain * 100, "price": np.arange(200.0)}), path)
        assert daes("evaluate", run, path, "--json").json["metrics"] == texts


def test_the_ending_of_a_file_tells_its_separator(daes, tmp_path):
    data, tabs, run = tmp_path / "clicks.csv", tmp_path / "clicks.tsv", tmp_path / "run"
    data.write_text("click;price\n" + "0;1\n1;2\n" * 50)
    tabs.write_text(data.read_text().replace(";", "\t"))
    assert daes("train", data, "--separator", ";", "--out", run, "--no-report").exit_code == 0
    found = [daes("evaluate", run, path, "--json").json["metrics"] for path in (data, tabs)]
    assert found[0] == found[1]


@pytest.mark.skipif(sys.platform == "win32", reason="processes are ended by signals")
def test_the_copy_of_standard_input_goes_when_the_process_is_ended(trained, tmp_path):
    command = [sys.executable, "-m", "daes", "predict", str(trained), "-", "--out", str(tmp_path / "scores.csv")]
    folder = tmp_path / "copies"
    folder.mkdir()
    with subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, "TMPDIR": str(folder)}) as process:
        process.stdin.write(b"price,age\n" * 10_000)
        process.stdin.flush()
        while not list(folder.glob("*/standard input")):
            assert process.poll() is None
            time.sleep(0.01)
        process.terminate()
        process.stdin.close()  # a signal that comes just before a read blocks is handled when the read returns
        assert process.wait() == 128 + signal.SIGTERM
    assert not list(folder.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="sizes of files are limited by resource")
def test_a_full_disk_for_the_copy_of_standard_input_is_explained(trained, tmp_path):
    import resource

    command = [sys.executable, "-m", "daes", "predict", str(trained), "-", "--out", str(tmp_path / "scores.csv")]
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (4096, 4096))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    data = b"price,age\n" + b"1,2\n" * 100_000
    done = subprocess.run(command, input=data, capture_output=True, check=False, env=environment, preexec_fn=limit)
    said = done.stderr.decode()
    assert done.returncode == 1, said
    assert said.startswith(f"daes: standard input could not be copied to {tmp_path}"), said
    assert "(TMPDIR names another place): File too large" in said


def test_messages_call_standard_input_by_its_name(trained, tmp_path):
    def run(command, data):
        done = subprocess.run([sys.executable, "-m", "daes", *command], input=data, capture_output=True, check=False)
        return done.returncode, done.stderr.decode()

    out = str(tmp_path / "scores.csv")
    rows = b"price,age,city,device\n1,2,a,b\nx,2,a,b\n"
    code, said = run(["predict", str(trained), "-", "--out", out], rows)
    assert (code, said.startswith("daes: row 2 of standard input: ")) == (2, True), said
    code, said = run(["evaluate", str(trained), "-"], b"")
    assert (code, said) == (2, "daes: standard input is empty\n")
    code, said = run(["predict", str(trained), "-", "--out", out], gzip.compress(rows))
    assert (code, said.startswith("daes: row 2 of standard input.gz: ")) == (2, True), said
    folder = tmp_path / "run"
    assert run(["train", "-", "--out", str(folder), "--no-report"], b"click,price\n" + b"0,1\n1,2\n" * 40)[0] == 0
    data = json.loads((folder / "config.json").read_text())["data"]
    assert (data["what"], data["name"]) == ("standard input", "standard input")
