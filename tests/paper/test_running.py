from dataclasses import replace
from time import monotonic

import pytest

from daes.paper import EXPERIMENTS, Execution, ExperimentSettings, OutOfTimeError
from daes.paper.data import name_in
from daes.paper.running import draw, find, plan, run_experiment

from .conftest import changed

SETTINGS = ExperimentSettings(rows=400, seeds=1, batch_size=200, methods=("fe", "ple"), backbones=("fnn",))
DATA = "adstream:400"


def run(out, settings=SETTINGS, *, name="overall", resume=False, overwrite=False, deadline=None):
    execution = Execution(out, resume=resume, deadline=deadline)
    return run_experiment(EXPERIMENTS[name], settings, DATA, execution, overwrite=overwrite)


def test_a_run_leaves_json_markdown_and_a_figure(tmp_path):
    result, known = run(tmp_path)
    assert not known
    assert {path.name for path in tmp_path.iterdir()} == {
        "work",
        *(f"overall.adstream.stream.rows400{ending}" for ending in (".json", ".md", ".png")),
    }
    assert result.settings["methods"] == ["fe", "ple"]
    assert result.data["simulated"] is True
    assert result.seconds > 0
    assert str(tmp_path) not in (tmp_path / "overall.adstream.stream.rows400.json").read_text()


def test_what_is_there_is_left_alone_unless_said_otherwise(tmp_path):
    first, _ = run(tmp_path)
    with pytest.raises(ValueError, match="exists already: --resume"):
        run(tmp_path)
    again, known = run(tmp_path, resume=True)
    assert known
    assert again == first
    with pytest.raises(ValueError, match=r"was made with seeds=1; 2 is asked for"):
        run(tmp_path, replace(SETTINGS, seeds=2), resume=True)
    assert run(tmp_path, replace(SETTINGS, rows=300))[0].stem != first.stem  # side by side
    left = [tmp_path / f".{first.stem}.json.0123abcd.tmp", tmp_path / "work" / first.stem / ".seconds.0123abcd.tmp"]
    for path in left:
        path.write_text("of a run that was killed")
    more, known = run(tmp_path, replace(SETTINGS, seeds=2), overwrite=True)
    assert not known
    assert not any(path.exists() for path in left)
    assert more.results["scores"]["fe"]["fnn"]["auc"][0] == first.results["scores"]["fe"]["fnn"]["auc"][0]


def test_a_run_out_of_time_goes_on_where_it_stopped(tmp_path):
    whole, _ = run(tmp_path / "whole")
    with pytest.raises(OutOfTimeError, match="not begun"):
        run(tmp_path / "parts", deadline=monotonic())
    # Half of the cells are there, as after a stop.
    work = tmp_path / "parts" / "work" / "overall.adstream.stream.rows400"
    work.mkdir(parents=True)
    lines = (tmp_path / "whole/work/overall.adstream.stream.rows400/results.jsonl").read_text().splitlines()
    (work / "results.jsonl").write_text(lines[0] + "\n")
    (work / "seconds").write_text("100.0\n")
    with pytest.raises(ValueError, match="exists already"):
        run(tmp_path / "parts")
    resumed, _ = run(tmp_path / "parts", resume=True)
    assert resumed.results["scores"] == whole.results["scores"]
    assert resumed.seconds > 100
    assert len((work / "results.jsonl").read_text().splitlines()) == 2


def make_sources(folder, ends):
    """Two data sets of one name in two folders, which differ in the label of the last row."""
    for name, end in zip("ab", ends, strict=True):
        place = folder / name / "ads"
        place.mkdir(parents=True)
        (place / "x_feat.type").write_text("Numerical\nCategorical\n")
        (place / "x_train1.data").write_text("".join(f"{row} {row % 3}\n" for row in range(400)))
        (place / "x_train1.solution").write_text("".join(f"{row % 2}\n" for row in range(399)) + f"{end}\n")
        yield f"automl:{place}"


def test_a_result_of_other_data_of_the_same_name_is_refused(tmp_path):
    one, other = make_sources(tmp_path, "01")
    execution = Execution(tmp_path / "out", resume=True)
    first, _ = run_experiment(EXPERIMENTS["overall"], SETTINGS, one, execution)
    assert first.data["source"] == "automl:ads"
    assert run_experiment(EXPERIMENTS["overall"], SETTINGS, one, execution) == (first, True)
    with pytest.raises(ValueError, match=r"was made with fingerprint of the data='.*--overwrite"):
        run_experiment(EXPERIMENTS["overall"], SETTINGS, other, execution)


def test_a_result_of_other_code_is_refused(tmp_path):
    result, _ = run(tmp_path)
    replace(result, versions={**result.versions, "code": "other"}).save(tmp_path)
    with pytest.raises(ValueError, match=r"made by another version of the code.*--overwrite"):
        run(tmp_path, resume=True)
    again, known = run(tmp_path, overwrite=True)
    assert not known
    assert again.versions == result.versions


def test_what_failed_is_tried_again(tmp_path, monkeypatch, failing_trials):
    failing_trials("ple", MemoryError("out of memory"))
    first, _ = run(tmp_path)
    assert first.failures == ["ple on fnn, seed 0: MemoryError: out of memory"]
    monkeypatch.undo()
    second, known = run(tmp_path, resume=True)
    assert not known
    assert second.failures == []
    assert second.seconds > first.seconds
    assert second.results["scores"]["fe"] == first.results["scores"]["fe"]
    assert run(tmp_path, resume=True) == (second, True)


def failing(name="overall", **parts):
    def fail(*_):
        raise RuntimeError("it does not work")

    return changed(name, **dict.fromkeys(parts, fail))


def test_a_result_stays_until_there_is_a_new_one(tmp_path):
    first, _ = run(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with pytest.raises(RuntimeError, match="does not work"):
        run_experiment(failing(run=True), SETTINGS, DATA, Execution(tmp_path), overwrite=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
    assert run(tmp_path, resume=True) == (first, True)


def test_a_replacement_that_was_stopped_goes_on(tmp_path):
    first, _ = run(tmp_path)

    def stop(settings, data, execution):
        (execution.folder / "results.jsonl").write_text("")
        raise OutOfTimeError("half")

    stopping = changed("overall", run=stop)
    with pytest.raises(OutOfTimeError):
        run_experiment(stopping, replace(SETTINGS, seeds=2), DATA, Execution(tmp_path), overwrite=True)
    assert (tmp_path / f"{first.stem}.json").exists()
    second, known = run(tmp_path, replace(SETTINGS, seeds=2), resume=True)
    assert not known
    assert second.settings["seeds"] == 2


def test_what_cannot_be_told_or_drawn_is_not_finished(tmp_path, monkeypatch):
    for part in ("markdown", "verdict", "draw"):
        monkeypatch.setitem(EXPERIMENTS, "overall", failing(**{part: True}))
        with pytest.raises(RuntimeError, match="does not work"):
            run(tmp_path, resume=True)
        assert not list(tmp_path.glob("*.json"))
        monkeypatch.undo()
    result, known = run(tmp_path, resume=True)
    assert not known
    for ending in (".md", ".png"):
        (tmp_path / f"{result.stem}{ending}").unlink()
    assert run(tmp_path, resume=True)[1]
    assert {path.suffix for path in tmp_path.glob(f"{result.stem}.*")} == {".json", ".md", ".png"}


def test_settings_that_an_experiment_does_not_use_change_nothing(tmp_path):
    seen = []
    experiment = changed(
        "overall", uses=("rows", "protocol", "methods"), run=lambda settings, *_: seen.append(settings)
    )
    with pytest.raises(TypeError):  # it finds nothing
        run_experiment(experiment, SETTINGS, DATA, Execution(tmp_path))
    assert seen == [ExperimentSettings(rows=400, methods=("fe", "ple"))]
    assert experiment.used(SETTINGS) == seen[0]


def test_data_without_numbers_are_refused(tmp_path):
    (tmp_path / "x_feat.type").write_text("Categorical\n")
    (tmp_path / "x_train1.data").write_text("a\nb\n")
    (tmp_path / "x_train1.solution").write_text("0\n1\n")
    for name in ("feature-count", "cost"):
        with pytest.raises(ValueError, match=f"{name} needs numerical features; automl:.* has none"):
            run_experiment(EXPERIMENTS[name], ExperimentSettings(), f"automl:{tmp_path}", Execution(tmp_path / "out"))


def test_figures_are_made_from_json_alone(tmp_path):
    result, _ = run(tmp_path)
    drawn = (tmp_path / f"{result.stem}.png").read_bytes()
    assert draw(result, tmp_path / "again.png").read_bytes() == drawn


def test_plans():
    def named(*arguments):
        return [(experiment.name, data and name_in(data)) for experiment, data in plan(*arguments)]

    data = ["criteo:x", "flights"]
    assert named(["space"], data) == [("space", "criteo"), ("space", "flights")]
    assert named(["value-space-limit"], data) == [("value-space-limit", None)]
    assert named(["estimation"], ["clicks.parquet"]) == []
    assert {data for _, data in named(list(EXPERIMENTS), [])} == {None, "adstream", "flights"}
    with pytest.raises(ValueError, match="there is no experiment 'spice'"):
        find("spice")


def test_every_row_of_the_plan_is_there():
    assert set(EXPERIMENTS) == {
        "overall",
        "estimation",
        "space",
        "beta",
        "meta-count",
        "feature-count",
        "context",
        "stationarity",
        "order-statistics-bias",
        "value-space-limit",
        "jump-bias",
        "reservoir-size",
        "cost",
        "ab-test",
        "ladder",
    }
    for experiment in EXPERIMENTS.values():
        assert not experiment.claim.startswith(" ")
        assert len(experiment.what) < 120
