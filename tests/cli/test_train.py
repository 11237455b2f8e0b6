import errno
import json
import os
import re
import shutil
import signal
import sys
import warnings

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from daes.backbone import BACKBONES
from daes.cli.app import build_app
from daes.embedding import METHODS
from daes.model import CTRModel
from daes.storage.checkpoint import CheckpointStore
from daes.stream.schema import Schema
from daes.training.run import train_run
from daes.training.step import TrainingStep
from daes.training.trainer import StreamTrainer

QUICK = ("--batch-size", "100", "--backbone", "fnn", "--no-report")


def test_a_run_leaves_everything_behind(daes, clicks, tmp_path):
    out = tmp_path / "run"
    result = daes(
        *("train", clicks, "--label", "click", "--numerical", "price,age", "--categorical", "city,device"),
        *("--method", "daes", "--seed", "3", "--out", out, *QUICK),
    )
    assert result.exit_code == 0, result.output
    assert "1,200 rows" in result.stdout
    assert "AUC" in result.stdout
    assert f"wrote {out}" in result.stdout
    assert {path.name for path in out.iterdir()} == {
        "config.json",
        "metrics.json",
        "history.json",
        "monitor.json",
        "importance.json",
        "checkpoints",
        "model",
        "lock",
    }
    config = json.loads((out / "config.json").read_text())
    assert config["schema"]["numerical"] == ["price", "age"]
    assert config["schema"]["categorical"] == ["city", "device"]
    assert config["training"]["seed"] == 3
    assert config["training"]["window"] == 1000
    assert config["options"]["method"] == "daes"
    assert config["environment"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert CTRModel.from_pretrained(out / "model").schema.numerical == ("price", "age")
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["rows"] == metrics["metrics"]["rows"] == 1200
    history = json.loads((out / "history.json").read_text())
    assert history["rows"][-1] == 1200
    assert json.loads((out / "monitor.json").read_text())["rows"][-1] == 1200


def test_json_is_one_object_and_the_only_thing_on_stdout(daes, clicks, tmp_path):
    result = daes("train", clicks, "--exclude", "id", "--out", tmp_path / "run", "--json", *QUICK)
    assert result.json["rows"] == 1200
    assert result.json["run"] == str(tmp_path / "run")
    assert 0 < result.json["metrics"]["auc"] < 1
    assert result.json["report"] is None


def test_options_reach_model_and_training(daes, clicks, tmp_path):
    result = daes(
        *("train", clicks, "--exclude", "id", "--out", tmp_path / "run", "--no-report"),
        *("--method", "daes-gate", "--backbone", "dcnv2", "--dim", "8", "--hidden", "12,6", "--dropout", "0.1"),
        *("--no-batch-norm", "--l2", "1e-5", "--tables", "vocabulary", "--table-size", "40", "--context", "device"),
        *("--reservoir-size", "500", "--half-life", "1000", "--method-option", "num_meta=5"),
        *("--backbone-option", "layers=2", "--batch-size", "200", "--optimizer", "adagrad", "--lr", "0.05"),
        *("--clip-norm", "1", "--max-norm", "1e6", "--bad-batch", "skip", "--label-delay", "1", "--window", "300"),
        *("--amp", "--device", "cpu", "--limit", "900", "--checkpoint-every", "400", "--keep", "2"),
    )
    assert result.exit_code == 0, result.output
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    model, training = config["model"], config["training"]
    assert (model["embedding"], model["backbone"], model["dim"], model["l2"]) == ("daes-gate", "dcnv2", 8, 1e-5)
    assert model["sizes"] == {"city": 40, "device": 40}
    assert model["context"] == ["device"]
    assert model["categorical_options"]["mode"] == "vocabulary"
    given = {"reservoir_size": 500, "estimator_options": {"half_life": 1000.0}, "num_meta": 5}
    assert model["embedding_options"].items() >= given.items()
    assert model["backbone_options"] == {"hidden": [12, 6], "dropout": 0.1, "batch_norm": False, "layers": 2}
    assert (training["optimizer"], training["learning_rate"], training["clip_norm"]) == ("adagrad", 0.05, 1.0)
    assert (training["label_delay"], training["window"], training["amp"]) == (1, 300, True)
    assert (training["bad_batch"], training["max_norm"], training["checkpoint_every"]) == ("skip", 1e6, 400)
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["rows"] == 900
    assert len(CheckpointStore(tmp_path / "run" / "checkpoints").steps()) == 2


def test_an_existing_run_is_resumed_overwritten_or_left_alone(daes, refused, clicks, trained, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    before = (run / "model" / "model.safetensors").read_bytes()
    assert "exists already: --resume" in refused("train", clicks, "--exclude", "id", "--out", run, *QUICK)
    resumed = daes("train", "--out", run, "--resume", "--no-report", "--json")
    assert resumed.json["resumed_at"] == 1200
    assert "continuing after row 1,200" in resumed.stderr
    assert (run / "model" / "model.safetensors").read_bytes() == before
    shorter = tmp_path / "shorter"
    daes("train", clicks, "--exclude", "id", "--out", shorter, "--limit", "600", *QUICK)
    longer = daes("train", "--out", shorter, "--resume", "--limit", "1200", "--no-report", "--json")
    assert (longer.json["resumed_at"], longer.json["rows"]) == (600, 1200)
    assert (shorter / "model" / "model.safetensors").read_bytes() == before
    sentence = refused("train", "--out", run, "--resume", "--lr", "0.5")
    assert "was started with training.learning_rate=0.03 and cannot be resumed with 0.5" in sentence
    assert "started with model.embedding='daes'" in refused("train", "--out", run, "--resume", "--method", "fe")
    fresh = daes("train", clicks, "--exclude", "id", "--out", run, "--overwrite", "--limit", "300", "--json", *QUICK)
    assert (fresh.json["rows"], fresh.json["resumed_at"]) == (300, None)
    assert "exclude each other" in refused("train", clicks, "--out", run, "--overwrite", "--resume", *QUICK)


def test_resume_ends_as_if_nothing_had_happened(daes, clicks, trained, tmp_path, monkeypatch):
    run = tmp_path / "run"
    arguments = ("train", clicks, "--exclude", "id", "--out", run, "--checkpoint-every", "300", *QUICK)

    class Kill(BaseException):
        pass

    def dies(self, *, wait):
        raise Kill

    with monkeypatch.context() as patch:
        patch.setattr(StreamTrainer, "save", dies)  # the checkpoint at the end
        with pytest.raises(Kill):
            daes(*arguments)
    assert not (run / "model").exists()
    result = daes("train", "--out", run, "--resume", "--json", "--no-report")
    assert result.json["resumed_at"] == 1200
    weights = [(folder / "model" / "model.safetensors").read_bytes() for folder in (run, trained)]
    assert weights[0] == weights[1]


def test_resume_begins_where_there_is_nothing(daes, refused, clicks, tmp_path):
    result = daes("train", clicks, "--exclude", "id", "--out", tmp_path / "run", "--resume", "--json", *QUICK)
    assert (result.json["rows"], result.json["resumed_at"]) == (1200, None)
    assert "DATA is needed" in refused("train", "--out", tmp_path / "other", "--resume")


def test_a_run_starts_from_another(daes, refused, clicks, trained, tmp_path):
    out = ("--out", tmp_path / "next", "--no-report")
    result = daes("train", clicks, "--from", trained, "--learning-rate", "0.5", *out, "--json")
    assert result.json["rows"] == 1200
    stored = json.loads((tmp_path / "next" / "config.json").read_text())
    parent = json.loads((trained / "config.json").read_text())
    assert stored["parent"] == {"run": str(trained.absolute()), "step": 12, "rows": 1200}
    assert (stored["schema"], stored["model"]) == (parent["schema"], parent["model"])
    assert stored["training"] == {**parent["training"], "learning_rate": 0.5}
    assert daes("train", *out, "--resume", "--json").json["resumed_at"] == 1200
    for option in (("--dim", "8"), ("--numerical", "price"), ("--method", "efd")):
        sentence = refused("train", clicks, "--from", trained, *option, "--out", tmp_path / "other")
        assert f"{option[0]} must not be given with --from: columns and model are those of {trained}" in sentence
    assert "no run in" in refused("train", clicks, "--from", tmp_path, "--out", tmp_path / "other")


def test_a_toml_file_gives_options_and_flags_win(daes, refused, clicks, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text(
        f'data = "{clicks}"\nnumerical = ["price"]\ncategorical = ["city"]\nbatch-size = 300\nlearning_rate = 0.02\n'
        'backbone = "fnn"\nhidden = [8, 4]\nbatch-norm = false\nreport = false\nmethod-option = {num_meta = 7}\n'
    )
    result = daes("train", "--config", config, "--out", tmp_path / "run", "--batch-size", "200")
    assert result.exit_code == 0, result.output
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored["schema"]["numerical"] == ["price"]
    assert (stored["training"]["batch_size"], stored["training"]["learning_rate"]) == (200, 0.02)
    assert stored["model"]["embedding_options"]["num_meta"] == 7
    assert stored["model"]["backbone_options"] == {"hidden": [8, 4], "batch_norm": False}
    for text, sentence in [
        ("batchsize = 3", "has an unknown option 'batchsize' (did you mean 'batch-size'?)"),
        ("batchsize = 3\nhue = 1", "has unknown options 'batchsize' (did you mean 'batch-size'?), 'hue'"),
        ("batch-size = 0\noptimizer = 'lion'", "got 0; Invalid value for '--optimizer': must be one of adagrad"),
        ("batch-size = 1.5", "a whole number of at least 1 is needed, got 1.5"),
        ("batch-size = [", "is not valid TOML"),
        ("data = 2024-01-01", "data must be a text, a number or a list of these"),
    ]:
        config.write_text(text)
        assert sentence in refused("train", clicks, "--config", config, "--out", tmp_path / "new")
    assert "missing.toml" in refused("train", clicks, "--config", tmp_path / "missing.toml", "--out", tmp_path / "new")


def test_a_file_names_options_as_the_command_line_does(daes, tmp_path):
    data, config = tmp_path / "clicks.csv", tmp_path / "run.toml"
    data.write_text("0,1.5\n1,2.5\n" * 40)
    for name in ("names", "column-names"):
        config.write_text(f'{name} = ["click", "price"]\nreport = false\nlr = 0.01\n')
        result = daes("train", data, "--config", config, "--out", tmp_path / name)
        assert result.exit_code == 0, result.output
        stored = json.loads((tmp_path / name / "config.json").read_text())
        assert (stored["schema"]["numerical"], stored["training"]["learning_rate"]) == (["price"], 0.01)
    config.write_text(f'from = "{tmp_path / "names"}"\n')
    assert daes("train", data, "--config", config, "--out", tmp_path / "next").exit_code == 0
    assert json.loads((tmp_path / "next" / "config.json").read_text())["parent"]["run"] == str(tmp_path / "names")


@pytest.fixture
def csv(tmp_path):
    def write(text, name="clicks.csv"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_wrong_input_is_one_sentence(refused, clicks, tmp_path, csv):
    out = ("--out", tmp_path / "run")
    known = ("train", clicks, "--exclude", "id")
    cases = [
        (("train", clicks, "--label", "clik", *out), "there is no column 'clik'; did you mean 'click'?"),
        (("train", clicks, "--numerical", "prize", *out), "there is no column 'prize'; did you mean 'price'?"),
        (("train", clicks, "--label", "age", "--exclude", "id", *out, *QUICK), "label column 'age' must hold 0 and 1"),
        (("train", clicks, "--exclude", "click,id", *out), "label must be named"),
        ((*known, "--numerical", "city", *out, *QUICK), "column 'city' must hold numbers"),
        (("train", tmp_path / "nothing.parquet", *out), "there is no file"),
        (("train", "nothing", *out), "no dataset of that name"),
        (("train", "", *out), "a path must not be empty, got ''"),
        ((*known, "--method", "dase", *out, *QUICK), "'--method': must be one of efd"),
        ((*known, "--backbone", "deepfn", *out), "'--backbone': must be one of fnn"),
        ((*known, "--optimizer", "lion", *out, *QUICK), "'--optimizer': must be one of adagrad, adam"),
        (
            (*known, "--learning-rate", "-1", *out, *QUICK),
            "'--learning-rate' / '--lr': a number above 0 is needed, got -1",
        ),
        ((*known, "--learning-rate", "fast", *out), "--learning-rate"),
        ((*known, "--batch-size", "0", *out), "a whole number of at least 1 is needed, got 0"),
        (
            (*known, "--method", "daes-gate", "--context", "town", *out, *QUICK),
            "context must name categorical columns of the schema",
        ),
        ((*known, "--bad-batch", "ignore", *out), "'--bad-batch': must be one of stop, skip"),
        ((*known, "--device", "tpu", *out), "'--device': auto, cpu, cuda or cuda:N is needed, got tpu"),
        ((*known, "--method", "efd", "--method-option", "num_meta=9", *out, *QUICK), "efd has no option 'num_meta'"),
        ((*known, "--method-option", "num_meta", *out), "'--method-option': NAME=VALUE is needed, got num_meta"),
        ((*known, "--hidden", "8,x", *out), "'--hidden': a whole number of at least 1 is needed, got x"),
        ((*known, "--separator", "ab", *out), "'--separator': one ASCII character is needed, got 'ab'"),
        (
            ("train", clicks, "--categorical", "id", "--exclude", "id", *out),
            "exclude must name columns without another",
        ),
        (
            (*known, "--workers", "4", *out),
            "--workers needs --ray; without it, 4 processes of this machine are started",
        ),
        ((*known, "--resume", "--overwrite", *out), "--resume and --overwrite exclude each other"),
        (("train", "-", "--follow", *out), "--follow needs a folder or a glob, got standard input"),
        ((*known, "--limit", "-5", *out), "a whole number of at least 1 is needed"),
        (known, "Missing option '--out'"),
        (("train", *out), "'DATA': the data to train on are needed"),
        (("train", *out, "--resume"), "DATA is needed: there is no run in"),
        ((*known, "--colour", *out), "No such option"),
        (
            ("train", csv("click,price\n1,2\n0,x\n", "x.csv"), "--numerical", "price", *out),
            f"row 2 of {tmp_path / 'x.csv'}: column 'price' must be a number, got 'x'",
        ),
        (("train", csv("click,price\n"), "--label", "click", "--numerical", "price", *out), "at least one row"),
        (("train", csv("click,price\n"), "--numerical", "price", *out), "at least one row"),
        ((*known, "--label-map", "yes", *out), "'--label-map': TEXT=0 or TEXT=1 is needed, got yes"),
        (
            (*known, "--label-map", "yes=1", "--label-map", "yes=0", *out),
            "--label-map must give each text one meaning, got yes=1 yes=0",
        ),
        ((*known, "--decimal", ",", *out), "options of CSV files: decimal"),
        (("train", csv("click;price\n1;2,5\n0;1\n", "semi.csv"), *out), "with ',' as the separator: is it ';'?"),
        (
            ("train", csv("click,price\n1,2,5\n0,1,5\n", "wide.csv"), *out),
            f"row 1 of {tmp_path / 'wide.csv'}: 2 fields are expected; there are 3",
        ),
        (
            ("train", csv("click,price\nyes,2\nno,1\n", "text.csv"), *out),
            "'click' has text among its values: with --label click, --label-map TEXT=1 says which text means 1",
        ),
        (
            ("train", csv("1,2.5\n0,1.5\n", "headless.csv"), *out),
            "Is that a row? --no-header reads a file without names",
        ),
    ]
    for arguments, sentence in cases:
        assert sentence in refused(*arguments), arguments
        assert not (tmp_path / "run" / "model").exists()
        shutil.rmtree(tmp_path / "run", ignore_errors=True)


def test_a_truncated_file(refused, clicks, tmp_path):
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(clicks.read_bytes()[:5000])
    assert str(broken) in refused("train", broken, "--out", tmp_path / "run")


def test_a_folder_that_cannot_be_written(refused, clicks, tmp_path):
    (tmp_path / "file").write_text("")
    sentence = refused("train", clicks, "--exclude", "id", "--out", tmp_path / "file" / "run", *QUICK)
    assert "Not a directory" in sentence
    assert "something other than a run" in refused("train", clicks, "--out", tmp_path / "file", "--resume", *QUICK)
    if os.geteuid():
        locked = tmp_path / "locked"
        locked.mkdir(mode=0o500)
        refused("train", clicks, "--exclude", "id", "--out", locked / "run", *QUICK)


def test_training_that_cannot_go_on_is_a_failure(refused, clicks, tmp_path, monkeypatch):
    import torch

    monkeypatch.setattr(CTRModel, "cross_entropy", staticmethod(lambda logits, *targets: logits.sum() * torch.nan))
    arguments = ("train", clicks, "--exclude", "id", "--out", tmp_path / "run", "--quiet", *QUICK)
    assert "the batch at row 0 cannot be learned from: the loss is nan" in refused(*arguments, code=1)


def test_an_interrupted_run_says_how_to_go_on(daes, clicks, tmp_path, monkeypatch):
    def interrupt(self, batch):
        raise KeyboardInterrupt

    monkeypatch.setattr("daes.training.step.TrainingStep.score", interrupt)
    result = daes("train", clicks, "--exclude", "id", "--out", tmp_path / "run", "--quiet", *QUICK)
    assert result.exit_code == 130
    assert result.stderr.startswith(f"to continue: daes train --out {tmp_path / 'run'} --resume\n")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_says_what_is_kept(daes, clicks, trained, tmp_path, monkeypatch, number, code):
    genuine, run = TrainingStep.score_and_learn, tmp_path / "my run"
    scored = []

    def score(self, batch, row):
        scored.append(batch)
        if len(scored) == 3:
            os.kill(os.getpid(), number)
        return genuine(self, batch, row)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingStep, "score_and_learn", score)
        result = daes("train", clicks, "--exclude", "id", "--out", run, *QUICK)
    assert result.exit_code == code
    assert f"to continue: daes train --out '{run}' --resume\n" in result.stderr
    assert f"daes: stopped by {number.name} after 300 rows; a checkpoint has all of it\n" in result.stderr
    assert daes("train", "--out", run, "--resume", "--no-report", "--json").json["resumed_at"] == 300
    weights = [(folder / "model" / "model.safetensors").read_bytes() for folder in (run, trained)]
    assert weights[0] == weights[1]


def test_a_run_is_continued_from_anywhere(daes, clicks, tmp_path, monkeypatch):
    monkeypatch.chdir(clicks.parent)
    daes("train", clicks.name, "--exclude", "id", "--limit", "600", "--out", tmp_path / "run", *QUICK)
    monkeypatch.chdir(tmp_path)
    result = daes("train", "--out", "run", "--resume", "--limit", "900", "--no-report", "--json")
    assert (result.json["resumed_at"], result.json["rows"]) == (600, 900)


def test_too_little_memory_is_a_sentence(refused, clicks, tmp_path):
    arguments = ("train", clicks, "--exclude", "id", "--out", tmp_path / "run", "--dim", "10000000000000", *QUICK)
    assert re.search(
        r"daes: not enough memory: [\d,.]+ GiB were asked for at once; smaller", refused(*arguments, code=1)
    )
    assert not (tmp_path / "run").exists()


def test_a_warning_is_a_sentence(daes, trained, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    newest = max((run / "checkpoints").glob("step-*"))
    shutil.copy(newest, newest.with_name("step-000000000099.safetensors"))
    before = warnings.showwarning
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        result = daes("train", "--out", run, "--resume", "--no-report")
        assert warnings.showwarning is before
    assert result.exit_code == 0
    lines = [line for line in result.stderr.splitlines() if "step-000000000099" in line]
    checkpoint = f"{run}/checkpoints/step-000000000099.safetensors"
    assert lines[0] == f"daes: {checkpoint} is refused: it is not a checkpoint of the step in its name"
    assert "CheckpointWarning" not in result.stderr


def test_a_warning_is_shown_once_however_often_the_rows_are_read(daes, tmp_path, csv):
    rows = [f"{number % 2},{number},Rome\n" for number in range(300)]
    rows[20], rows[200] = '0,20,"Rome\n', '0,200,Rome"\n'
    path = csv("click,price,city\n" + "".join(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = daes("train", path, "--out", tmp_path / "run", *QUICK)
    assert result.stderr.count("row 21 of") == 1


def test_bad_batches_are_reported_with_their_rows(daes, tmp_path, csv):
    rows = "".join(f"{number % 2},{number}\n" for number in range(300))
    path = csv("click,price\n" + rows.replace("1,151\n", "7,151\n"))
    arguments = ("train", path, "--numerical", "price", "--out", tmp_path / "run", *QUICK)
    assert f"row 152 of {path}: label column 'click' must hold 0 and 1 only, got 7" in daes(*arguments).stderr
    assert not (tmp_path / "run").exists()
    result = daes(*arguments, "--bad-batch", "skip", "--json")
    assert [bad["row"] for bad in result.json["bad_batches"]] == [100]
    assert result.json["rows"] == 200
    assert "the batch at row 100 is not learned from: " in result.stderr
    assert "1 of 2 batches were not learned from; metrics.json lists them" in result.stderr


def test_the_columns_are_said_with_what_may_be_wrong(daes, tmp_path, csv):
    path = csv(
        ",outcome,cost,price,zip,day,shop,user_id,fee,empty\n"
        + "".join(
            f"{n},{'yes' if n % 3 else 'no'},{n},{'x12' if n == 7 else n / 2},{n % 9:05},2024-01-0{n % 9 + 1},one,"
            f"{n + 9},${n}.50,\n"
            for n in range(300)
        )
    )
    arguments = ("train", path, "--label", "outcome", "--label-map", "yes=1", "--out", tmp_path / "run", *QUICK)
    assert "must hold 'yes', got 'no'" in daes(*arguments).stderr
    result = daes(*arguments, "--label-map", "no=0")
    assert result.exit_code == 0, result.output
    lines = [re.split(r"  +", line) for line in result.stderr.splitlines()]
    assert [line[:3] for line in lines[:11]] == [
        ["column", "part", "because"],
        ["unnamed_1", "unused", "no name"],
        ["outcome", "label", "named"],
        ["cost", "numerical", "numbers"],
        ["price", "categorical", "text"],
        ["zip", "numerical", "numbers"],
        ["day", "time", "timestamps"],
        ["shop", "categorical", "text"],
        ["user_id", "numerical", "numbers"],
        ["fee", "categorical", "text"],
        ["empty", "unused", "empty"],
    ]
    assert lines[4][3:] == ["0.0, 0.5, 1.0", "300"]
    assert lines[10][3:] == ["0", "100 %"]
    for part in (
        "warning: 'price' is text, though 99.7% of its values are numbers; 'x12' is not. If that means missing: "
        "--missing x12",
        "warning: 'zip' looks like a code, not a number (00000): list it in --categorical",
        "warning: 'shop' has only one value",
        "warning: 'user_id' has the name of an id and is read as a number",
        "warning: 'cost' is an integer with a different value in nearly every row",
        "warning: 'fee' is text that looks like numbers with a currency or percent sign ($0.50)",
        "3 steps are few to learn from: --batch-size 8 makes 38 of them",
    ):
        assert part in result.stderr
    assert "300 rows in 3 steps of 100 rows" in result.stdout
    fixed = daes(*arguments, "--label-map", "no=0", "--missing", "x12", "--overwrite", "--quiet")
    assert (fixed.exit_code, fixed.stderr) == (0, "")
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored["schema"]["numerical"] == ["cost", "price", "zip", "user_id"]


def test_rows_out_of_order_are_sorted_by_time(daes, tmp_path, csv):
    rows = [f"{n % 2},{n},2024-01-01 00:{n // 60:02}:{n % 60:02}" for n in range(300)]
    files = [
        csv("\n".join(["click,price,at", *lines]) + "\n", name)
        for lines, name in ((rows, "a.csv"), (rows[::-1], "b.csv"))
    ]
    results = [daes("train", path, "--time", "at", "--out", tmp_path / path.stem, "--json", *QUICK) for path in files]
    assert "the rows are in the order of 'at'" in results[0].stderr
    assert (
        "299 of 300 rows are earlier than a row before them, the first is row 2: they were sorted" in results[1].stderr
    )
    assert results[0].json["metrics"] == results[1].json["metrics"]


def test_ways_to_write_a_csv_file(daes, tmp_path, csv):
    rows = [f"{n % 2};{n},5;city {n % 5}" for n in range(200)]
    run = ("--separator", ";", "--decimal", ",", "--json", *QUICK)
    plain = csv("\n".join(rows) + "\n", "plain.csv")
    named = daes(
        "train",
        plain,
        "--names",
        'click,"price, net",city',
        "--numerical",
        '"price, net"',
        "--out",
        tmp_path / "1",
        *run,
    )
    assert named.exit_code == 0, named.output
    numbered = daes("train", plain, "--no-header", "--label", "column_1", "--out", tmp_path / "2", *run)
    assert numbered.json["metrics"] == named.json["metrics"]
    read = json.loads((tmp_path / "1" / "config.json").read_text())["schema"]
    assert (read["numerical"], read["categorical"]) == (["price, net"], ["city"])


def test_quotes_may_be_any_characters(daes, refused, tmp_path, csv):
    data = csv("click\tsize\n" + "".join(f'{n % 2}\t{n % 3}" pipe\n' for n in range(201)), "a.tsv")
    assert "ends within quotes" in refused("train", data, "--out", tmp_path / "run", *QUICK)
    result = daes("train", data, "--no-quotes", "--json", "--out", tmp_path / "run", *QUICK)
    assert result.exit_code == 0, result.output
    assert result.json["rows"] == 201
    assert daes("train", "--out", tmp_path / "run", "--resume").exit_code == 0


def test_bad_rows_are_left_out_and_listed_everywhere(daes, tmp_path, csv):
    rows = [f"{number % 2},{number}" for number in range(300)]
    rows[40], rows[151], rows[152], rows[299] = "1,oops", "7,151", "0", ",299"
    path = csv("\n".join(["click,price", *rows]) + "\n")
    run = tmp_path / "run"
    arguments = ("train", path, "--numerical", "price", "--out", run, "--batch-size", "100", "--backbone", "fnn")
    result = daes(*arguments, "--bad-rows", "skip", "--json")
    assert result.exit_code == 0, result.output
    assert (result.json["rows"], result.json["bad_batches"]) == (296, [])
    reasons = {
        41: "column 'price' must be a number, got 'oops'",
        152: "label column 'click' must hold 0 and 1 only, got 7.0",
        153: "2 fields are expected; there are 1",
        300: "column 'click' must have a value in every row, got null",
    }
    assert result.json["bad_rows"]["count"] == 4
    listed = (run / "bad_rows.csv").read_text().splitlines()
    assert listed[0] == "file,row,reason"
    assert sorted(listed[1:], key=lambda line: int(line.split(",")[1])) == [
        f'{path},{row},"{reason}"' if "," in reason else f"{path},{row},{reason}" for row, reason in reasons.items()
    ]
    assert f"4 bad rows left out, first: row 41 of {path}: {reasons[41]}; {run / 'bad_rows.csv'} lists" in result.stderr
    assert "4 rows were left out" in (run / "report.html").read_text()
    again = daes("evaluate", run, path, "--bad-rows", "skip", "--json")
    assert (again.json["metrics"]["rows"], again.json["bad_rows"]) == (296, 4)


def test_steps_are_counted_where_batches_are_short(daes, tmp_path, csv):
    rows = [f"{2 if number % 4 == 3 else number % 2},{number}" for number in range(600)]
    path, run = csv("\n".join(["click,price", *rows]) + "\n"), tmp_path / "run"
    arguments = ("--numerical", "price", "--bad-rows", "skip", "--batch-size", "8", "--backbone", "fnn")
    result = daes("train", path, "--out", run, *arguments)
    steps = CheckpointStore(run / "checkpoints").steps()[-1]
    assert steps == 75
    assert "450 rows in 75 steps of up to 8 rows" in result.stdout
    assert json.loads((run / "metrics.json").read_text())["batches"] == 75
    assert "only 75 steps: with more rows" in (run / "report.html").read_text()
    assert "are few to learn from" not in result.stderr


def test_labels_of_one_class_are_explained(daes, tmp_path, csv):
    path = csv("click,price\n" + "".join(f"0,{number}.5\n" for number in range(100)))
    result = daes("train", path, "--out", tmp_path / "run", "--backbone", "fnn")
    assert result.exit_code == 0, result.output
    reason = "is not defined: labels of one class only in 100 rows: no click"
    assert f"\nauc {reason}\n" in result.stdout
    assert f"\nwindow_auc {reason}\n" in result.stdout


def test_a_column_name_with_a_line_end_stays_on_its_line(daes, tmp_path, csv):
    path = csv('click,"pri\nce"\n' + "".join(f"{number % 2},{number}.5\n" for number in range(100)))
    result = daes("train", path, "--out", tmp_path / "run", "--backbone", "fnn")
    assert "\npri\\nce  numerical" in result.stderr


def test_bad_rows_are_counted_once_over_an_interruption(daes, tmp_path, csv, monkeypatch):
    rows = [f"{number % 2},{number}" for number in range(400)]
    rows[30], rows[130], rows[330] = "1,x", "5,130", "1,x"
    path = csv("\n".join(["click,price", *rows]) + "\n")
    run = tmp_path / "run"
    options = ("--numerical", "price", "--bad-rows", "skip", "--sample-rows", "50", "--checkpoint-every", "100", *QUICK)

    class Kill(BaseException):
        pass

    def dies(self, trainer, batch, logits):
        if trainer.rows > 250:
            raise Kill

    with monkeypatch.context() as patch:
        patch.setattr("daes.cli.progress.TrainingProgress.__call__", dies)
        with pytest.raises(Kill):
            daes("train", path, "--out", run, *options)
    resumed = daes("train", "--out", run, "--resume", "--no-report", "--json")
    assert 0 < resumed.json["resumed_at"] < 300
    assert (resumed.json["rows"], resumed.json["bad_rows"]["count"]) == (397, 3)
    whole = daes("train", path, "--out", tmp_path / "whole", *options, "--json")
    assert whole.json["bad_rows"] == resumed.json["bad_rows"]
    weights = [(folder / "model" / "model.safetensors").read_bytes() for folder in (run, tmp_path / "whole")]
    assert weights[0] == weights[1]


def test_a_report_is_written(daes, clicks, tmp_path):
    arguments = ("train", clicks, "--exclude", "id", "--out", tmp_path / "run", "--batch-size", "300", "--json")
    result = daes(*arguments)
    assert result.exit_code == 0, result.output
    assert result.json["report"] == str(tmp_path / "run" / "report.html")
    assert (tmp_path / "run" / "report.html").stat().st_size > 1000


def test_help_names_every_method_and_backbone(daes):
    result = daes("train", "--help")
    assert result.exit_code == 0
    words = set(re.findall(r"[\w-]+", result.stdout))
    assert words >= {*METHODS, *BACKBONES}
    for part in ("Examples", "--resume", "--learning-rate", "Columns", "Model", "Training", "Reading", "Run"):
        assert part in result.stdout


def test_the_command_is_train_run(clicks, trained, tmp_path):
    from daes.stream.dataset import Dataset
    from daes.training.config import TrainConfig

    model = {"embedding": "daes", "backbone": "fnn"}
    config = TrainConfig(batch_size=100, window=1000)
    run = train_run(Dataset.open(str(clicks), exclude=["id"]), tmp_path / "run", model=model, config=config)
    weights = [(folder / "model" / "model.safetensors").read_bytes() for folder in (run.folder.path, trained)]
    assert weights[0] == weights[1]


def test_metrics_can_be_followed_elsewhere(daes, refused, clicks, tmp_path):
    events = tmp_path / "events"
    result = daes(
        "train", clicks, "--exclude", "id", "--out", tmp_path / "run", "--track", f"tensorboard:{events}", *QUICK
    )
    assert result.exit_code == 0, result.output
    assert any(path.name.startswith("events.out") for path in events.iterdir())
    message = refused("train", clicks, "--exclude", "id", "--out", tmp_path / "other", "--track", "paper", *QUICK)
    assert "'--track': must be one of tensorboard, mlflow, wandb, got 'paper'" in message
    assert not (tmp_path / "other").exists()


def test_a_run_on_standard_input_cannot_be_resumed(refused, clicks, tmp_path, monkeypatch):
    out = tmp_path / "run"
    csv = pq.read_table(clicks).drop_columns("id").to_pandas().to_csv(index=False)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("daes.training.results.RunResults.write", interrupted)
        stopped = CliRunner().invoke(build_app(), ["train", "-", "--out", str(out), *QUICK], input=csv)
    assert stopped.exit_code == 130, stopped.output
    on = f"To continue training with the rows of a file: daes train FILE --from {out} --out OTHER\n"
    assert f"standard input cannot be read again. {on}" in stopped.stderr
    assert "--resume" not in stopped.stderr
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for data in ((), ("-",), (clicks,)):
        said = refused("train", *data, "--out", out, "--resume")
        assert said == f"daes: {out} cannot be resumed: standard input cannot be read again. {on}"
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert "--ray needs files" in refused("train", "-", "--ray", "--out", tmp_path / "other")


def test_a_disk_that_is_full_at_the_report_is_explained(daes, clicks, tmp_path, monkeypatch):
    out = tmp_path / "run"

    def full(path, _):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as patch:
        patch.setattr("daes.report.page.write_text", full)
        failed = daes("train", clicks, "--exclude", "id", "--out", out, "--backbone", "fnn")
    advice = f"to continue: daes train --out {out} --resume"
    assert failed.exit_code == 1
    assert failed.stderr.splitlines()[-1] == f"daes: {out / 'report.html'}: No space left on device; {advice}"
    assert daes("train", "--out", out, "--resume").exit_code == 0
    assert (out / "report.html").is_file()


def test_files_that_keep_arriving(daes, refused, tmp_path, monkeypatch):
    monkeypatch.setattr("daes.stream.follow._BETWEEN_LISTINGS", 0.01)
    folder = tmp_path / "in"
    folder.mkdir()
    lines = [f"{number % 2},{number % 7},city {number % 3}\n" for number in range(300)]
    (folder / "1.csv").write_text("click,price,city\n" + "".join(lines))
    options = ("--max-wait", "0.1", "--sample-rows", "100", *QUICK)
    first = daes("train", folder, "--follow", "--limit", "200", "--out", tmp_path / "run", "--json", *options)
    assert first.json["rows"] == 200, first.output
    assert "training starts once 100 rows have arrived: they determine the table sizes (--sample-rows)" in first.stderr
    (folder / "2.csv").write_text("click,price,city\n" + "".join(lines[:100]))
    again = daes("train", "--out", tmp_path / "run", "--resume", "--limit", "400", "--json", "--no-report")
    assert (again.json["resumed_at"], again.json["rows"]) == (200, 400)
    for change, was in (
        (("--method", "fe"), "--method=daes"),
        (("--num-context", "1"), "--num-context=3"),
        (("--exclude", "city"), "--exclude=None"),
    ):
        said = refused("train", "--out", tmp_path / "run", "--resume", "--limit", "500", *change)
        assert f"was started with {was} and cannot be resumed with" in said
    same = ("train", folder, "--follow", "--limit", "400", "--out", tmp_path / "run", "--resume", "--json", *options)
    assert daes(*same).json["resumed_at"] == 400


def test_the_columns_may_be_a_file(daes, refused, clicks, tmp_path, monkeypatch):
    schema = tmp_path / "schema.json"
    schema.write_text(Schema("click", ("price",), ("device",)).to_json())
    result = daes("train", clicks, "--schema", schema, "--out", tmp_path / "run", "--json", *QUICK)
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "run" / "config.json").read_text())["schema"]["categorical"] == ["device"]
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)
        assert daes("train", clicks, "--schema", "schema.json", "--out", "later", "--limit", 800, *QUICK).exit_code == 0
    assert daes("train", "--out", tmp_path / "later", "--resume").exit_code == 0  # from another folder
    said = refused("train", clicks, "--schema", schema, "--label", "click", "--out", tmp_path / "other", *QUICK)
    assert "--schema names all columns" in said
    for text in (b"[", b'{"label": "click"}', b"\xff"):
        schema.write_bytes(text)
        said = refused("train", clicks, "--schema", schema, "--out", tmp_path / "other", *QUICK)
        assert said.startswith(f"daes: {schema}: ")


def test_only_train_reads_a_topic(refused, trained, tmp_path):
    said = refused("evaluate", trained, "nats://127.0.0.1:1/ads")
    assert "a topic has no end and only `daes train` reads it" in said
    options = ("--out", tmp_path / "run", *QUICK)
    assert "there is no NATS server at 127.0.0.1:1" in refused("train", "nats://127.0.0.1:1/ads", *options)


def test_options_of_late_labels_are_checked(refused, clicks, tmp_path):
    options = ("--out", tmp_path / "run", *QUICK)
    topic, labels = "nats://127.0.0.1:1/ads", ("--labels", "nats://127.0.0.1:1/clicks")
    assert "--labels needs --key NAME" in refused("train", topic, *labels, *options)
    for given in (("--key", "id"), ("--label-window", "1h"), ("--max-pending", "9"), ("--overflow", "drop")):
        said = refused("train", topic, *given, *options)
        assert "--key, --label-window, --max-pending, --overflow need --labels TOPIC" in said
    said = refused("train", topic, *labels, "--key", "id", "--label-window", "soon", *options)
    assert "'--label-window': a positive number with s, m, h or d, such as 30m, is needed, got soon" in said
    said = refused("train", topic, *labels, "--key", "id", "--overflow", "keep", *options)
    assert "'--overflow': must be one of no-click, drop, spill, got 'keep'" in said
    assert "key is for streams without an end" in refused("train", clicks, *labels, "--key", "id", *options)


def test_options_of_late_labels_are_those_of_the_run_that_is_resumed(refused, trained, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    again = ("train", "--out", run, "--resume", "--overflow", "drop")
    assert "need --labels TOPIC" in refused(*again)
    config = json.loads((run / "config.json").read_text())
    config["options"] |= {"data": "nats://127.0.0.1:1/ads", "labels": "nats://127.0.0.1:1/clicks", "key": "id"}
    (run / "config.json").write_text(json.dumps(config))
    assert "there is no NATS server at 127.0.0.1:1" in refused(*again)


@pytest.mark.parametrize(
    ("method", "option", "why"),
    [
        ("efd", ("--half-life", "100"), "--half-life has no effect with efd, which keeps no sample of the numbers"),
        ("fe", ("--reservoir-size", "9"), "--reservoir-size has no effect with fe"),
        ("daes", ("--context", "ranked"), "--context has no effect with daes, which is not field-aware, got ranked"),
    ],
)
def test_options_that_a_method_does_not_use_are_refused(daes, refused, clicks, tmp_path, method, option, why):
    out = ("--exclude", "id", "--out", tmp_path / "run", *QUICK)
    assert why in refused("train", clicks, "--method", method, *option, *out)
    assert daes("train", clicks, *option, "--method", "daes-gate", *out).exit_code == 0
    assert daes("train", clicks, *option, "--method", "daes-gate", *out, "--resume").exit_code == 0


@pytest.mark.parametrize("option", ["--pairs", "--recent"])
def test_options_of_evidence_need_evidence(refused, tmp_path, option):
    sentence = refused("train", "adstream:100", "--no-evidence", option, "7", "--out", tmp_path / "run")
    assert f"{option} is an option of evidence" in sentence
    assert not (tmp_path / "run").exists()


def test_a_seed_that_is_too_large_is_named(refused, tmp_path):
    sentence = refused("train", "adstream:100", "--out", tmp_path / "run", "--seed", 2**64)
    assert "--seed" in sentence
    assert "a whole number below 2^63 is needed, got 18446744073709551616" in sentence


def test_a_list_in_place_of_a_number_names_the_option(refused, tmp_path):
    (tmp_path / "run.toml").write_text("batch-size = [1]\n")
    sentence = refused("train", "adstream:100", "--out", tmp_path / "run", "--config", tmp_path / "run.toml")
    assert "'--batch-size': a whole number of at least 1 is needed, got ['1']" in sentence


def test_what_a_run_keeps_is_remembered_when_it_is_resumed(daes, tmp_path):
    run = tmp_path / "run"
    kept = ("--checkpoint-every", "100", "--keep", "5", "--no-report", "--track", f"tensorboard:{tmp_path / 'board'}")
    daes("train", "adstream:2000", "--limit", "600", "--out", run, *kept, *QUICK)
    daes("train", "--out", run, "--resume", "--limit", "1000", "--keep", "4")
    assert len(list((run / "checkpoints").glob("step-*"))) == 4
    assert not (run / "report.html").exists()
    stored = json.loads((run / "config.json").read_text())
    assert (stored["options"]["keep"], stored["run"]["keep"], stored["options"]["limit"]) == (4, 4, 1000)
    again = daes("train", "--out", run, "--resume", "--json").json  # the limit that was raised is the run's now
    assert (again["rows"], again["resumed_at"]) == (1000, 1000)
    assert json.loads((run / "config.json").read_text()) == stored


@pytest.mark.parametrize("sample", [100, 600])
def test_fewer_rows_than_a_run_has_read_are_refused(daes, refused, tmp_path, sample):
    run = tmp_path / "run"
    daes("train", "adstream:2000", "--limit", "600", "--sample-rows", sample, "--out", run, *QUICK)
    before = (run / "config.json").read_bytes()
    said = refused("train", "--out", run, "--resume", "--limit", "500")
    assert "limit must be at least the 600 rows that the run has read, got 500" in said
    assert (run / "config.json").read_bytes() == before


def test_what_is_logged_is_said(daes, tmp_path):
    run = tmp_path / "run"
    daes("train", "adstream:300", "--limit", "200", "--out", run, *QUICK)
    config = json.loads((run / "config.json").read_text())
    config["environment"]["packages"]["torch"] = "1.0.0"
    (run / "config.json").write_text(json.dumps(config))
    again = ("train", "--out", run, "--resume", "--limit", "300")
    assert "was started with torch 1.0.0 and is resumed with torch" in daes(*again).stderr
    assert "torch 1.0.0" not in daes(*again, "--quiet").stderr


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("limit = true", "limit must be a text, a number or a list of these, got true"),
        ("dim = true", "dim must be a text, a number or a list of these, got true"),
        ("learning-rate = false", "learning-rate must be a text, a number or a list of these, got false"),
        ("numerical = true", "numerical must be a text, a number or a list of these, got true"),
        ("numerical = [true]", "numerical must be a text, a number or a list of these, got [True]"),
        ("track = true", "track must be a text, a number or a list of these, got true"),
        ("overwrite = 2024-01-01", "overwrite must be true or false, got 2024-01-01"),
    ],
)
def test_only_switches_are_true_or_false_in_a_file(refused, tmp_path, line, sentence):
    config = tmp_path / "run.toml"
    config.write_text(line)
    refusal = refused("train", "adstream:100", "--out", tmp_path / "run", "--config", config)
    assert f"{config}: {sentence}" in refusal
