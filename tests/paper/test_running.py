from dataclasses import replace
from time import monotonic

import pytest

from daes.paper import EXPERIMENTS, DataSet, Means, OutOfTimeError, Settings
from daes.paper.running import draw, find, plan, run_experiment

SETTINGS = Settings(rows=400, seeds=1, batch_size=200, methods=("fe", "ple"), backbones=("fnn",))
DATA = DataSet("adstream:400")


def run(out, settings=SETTINGS, *, name="overall", resume=False, overwrite=False, deadline=None):
    means = Means(out, resume=resume, deadline=deadline)
    return run_experiment(EXPERIMENTS[name], settings, DATA, out, means, overwrite=overwrite)


def test_a_run_leaves_json_markdown_and_a_figure(tmp_path):
    result, known = run(tmp_path)
    assert not known
    assert {path.name for path in tmp_path.iterdir()} == {
        "work",
        *(f"overall.adstream.stream{ending}" for ending in (".json", ".md", ".png")),
    }
    assert result.settings["methods"] == ["fe", "ple"]
    assert result.data["simulated"] is True
    assert result.seconds > 0
    assert str(tmp_path) not in (tmp_path / "overall.adstream.stream.json").read_text()


def test_what_is_there_is_left_alone_unless_said_otherwise(tmp_path):
    first, _ = run(tmp_path)
    with pytest.raises(ValueError, match="exists already: --resume"):
        run(tmp_path)
    again, known = run(tmp_path, resume=True)
    assert known
    assert again == first
    with pytest.raises(ValueError, match=r"was made with seeds=1, however: 2 is asked for"):
        run(tmp_path, replace(SETTINGS, seeds=2), resume=True)
    more, known = run(tmp_path, replace(SETTINGS, seeds=2), overwrite=True)
    assert not known
    assert more.results["scores"]["fe"]["fnn"]["auc"][0] == first.results["scores"]["fe"]["fnn"]["auc"][0]


def test_a_run_out_of_time_goes_on_where_it_stopped(tmp_path):
    whole, _ = run(tmp_path / "whole")
    with pytest.raises(OutOfTimeError, match="not begun"):
        run(tmp_path / "parts", deadline=monotonic())
    # Half of the cells are there, as after a stop.
    work = tmp_path / "parts" / "work" / "overall.adstream.stream"
    work.mkdir(parents=True)
    lines = (tmp_path / "whole/work/overall.adstream.stream/results.jsonl").read_text().splitlines()
    (work / "results.jsonl").write_text(lines[0] + "\n")
    (work / "seconds").write_text("100.0\n")
    with pytest.raises(ValueError, match="exists already"):
        run(tmp_path / "parts")
    resumed, _ = run(tmp_path / "parts", resume=True)
    assert resumed.results["scores"] == whole.results["scores"]
    assert resumed.seconds > 100
    assert len((work / "results.jsonl").read_text().splitlines()) == 2


def test_figures_are_made_from_json_alone(tmp_path):
    result, _ = run(tmp_path)
    drawn = (tmp_path / f"{result.stem}.png").read_bytes()
    assert draw(result, tmp_path / "again.png").read_bytes() == drawn


def test_plans():
    def named(*arguments):
        return [(experiment.name, data and data.name) for experiment, data in plan(*arguments)]

    data = [DataSet("criteo:x"), DataSet("flights")]
    assert named(["space"], data) == [("space", "criteo"), ("space", "flights")]
    assert named(["value-space-limit"], data) == [("value-space-limit", None)]
    assert named(["estimation"], [DataSet("clicks.parquet")]) == []
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
    }
    for experiment in EXPERIMENTS.values():
        assert not experiment.claim.startswith(" ")
        assert len(experiment.what) < 120
