from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daes.experiments.row_tests import bootstrap_p
from daes.paper import EXPERIMENTS, Execution, ExperimentSettings, OutOfTimeError
from daes.paper.ladder import DEFAULT, RUNGS, _choose, _default, rivals
from daes.paper.ladder_result import best_of, cells, corrected_tests, count_significant, friedman_of, pair_tests
from daes.paper.page import read_results
from daes.paper.running import run_experiment
from daes.paper.why import page, write_why

from .conftest import make_result, show

SETTINGS = ExperimentSettings(
    rows=300, seeds=1, methods=("efd", "fe", "daes", "ftrl"), backbones=("fnn",), given=("none", "both")
)


@pytest.fixture(scope="module")
def streams(tmp_path_factory):
    """Two streams as files, one with a column that spells out the clock."""
    folder = tmp_path_factory.mktemp("streams")
    rng = np.random.default_rng(0)
    for name, clock in (("kddcup12_click", None), ("weather_aus", "date")):
        number = rng.normal(size=400)
        columns = {
            "label": (rng.random(400) < 1 / (1 + np.exp(-2 * number))).astype(np.int64),
            "x": number,
            "f": rng.choice(["a", "b", "c"], 400),
        }
        if clock:
            columns[clock] = [f"2026-01-{day:02d}" for day in 1 + np.arange(400) // 20]
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    return folder


@pytest.fixture(scope="module")
def done(streams, tmp_path_factory):
    """A small ladder; its lines of progress."""
    notes = []
    folder = tmp_path_factory.mktemp("ladder")
    execution = Execution(folder, data=streams, note=notes.append)
    settings = replace(SETTINGS, streams=("kddcup12_click", "weather_aus"))
    return EXPERIMENTS["ladder"].run(settings, None, execution), settings, notes, execution


def test_every_rung_and_rival_has_a_score_in_every_cell(done):
    found, _, notes, _ = done
    assert found["failures"] == []
    labels = [*RUNGS, "EFD", "EFD, same inputs", "FE", "FE, same inputs", "FTRL"]
    assert set(labels) < set(found["scores"])
    for label in found["scores"]:
        assert set(cells(found, label)) == {("kddcup12_click", "fnn"), ("weather_aus", "fnn")}
    # What is the same trial under two labels is trained once.
    assert cells(found, "daes (our preset), same inputs") == cells(found, DEFAULT)
    assert sum("FTRL" in line for line in notes) == 2
    assert found["streams"]["weather_aus"] == {
        "rows": 300,
        "numerical": 1,
        "categorical": 1,
        "batch_size": 8,
        "fingerprint": found["streams"]["weather_aus"]["fingerprint"],
    }
    tested = {(t["subject"], t["baseline"]) for t in found["tests"]}
    assert ("+ Adagrad 0.03", "+ leaky ReLU, pairs × 10/n") in tested
    assert {(DEFAULT, "EFD"), (DEFAULT, "FE, same inputs"), (DEFAULT, "FTRL")} < tested
    corrected = corrected_tests(found)
    raw = [max(t["delong"], bootstrap_p(t["difference"], t["low"], t["high"])) for t in found["tests"]]
    assert min(t["p_value"] for t in corrected) == pytest.approx(min(1, min(raw) * len(raw)))


def test_a_second_run_trains_nothing(done):
    found, settings, _, execution = done
    notes = []
    again = EXPERIMENTS["ladder"].run(settings, None, replace(execution, note=notes.append))
    assert again == found
    assert all(line.startswith("tested") for line in notes)
    with pytest.raises(OutOfTimeError, match="trials are done"):
        EXPERIMENTS["ladder"].run(replace(settings, seeds=2), None, replace(execution, deadline=0.0))


def test_it_is_shown_and_made_a_page_of(done, tmp_path):
    found, settings, _, _ = done
    result = make_result("ladder", found, settings)
    markdown, verdict = show(result, tmp_path)
    assert "| + pairs and triples (the default) |" in markdown
    assert "Given its plain inputs and its evidence" in markdown
    assert "Friedman's test with 2 streams as blocks" in markdown
    assert verdict.count("against the best rival of each cell") == 3
    assert "paired DeLong test" in verdict
    result.save(tmp_path)
    write_why(tmp_path, tmp_path / "why.md")
    text = (tmp_path / "why.md").read_text()
    assert text == page(result, ".")
    assert "`+ Adagrad 0.03`: " in text
    assert f"code {result.versions['code']}" in text
    assert "nan" not in text
    for seconds in (0.0, 2.0):
        times = {label: dict.fromkeys(by_stream, seconds) for label, by_stream in found["seconds"].items()}
        timed = page(make_result("ladder", {**found, "seconds": times}, settings), ".")
        assert ("the time of a trial" in timed) == (seconds > 0)
    with pytest.raises(FileNotFoundError, match="daes paper ladder"):
        write_why(tmp_path / "nothing", tmp_path / "why.md")


def test_streams_that_are_not_there_are_left_out_unless_asked_for(streams, tmp_path):
    execution = Execution(tmp_path, data=streams)
    with pytest.raises(FileNotFoundError, match="there is no stream criteo_137k"):
        EXPERIMENTS["ladder"].run(replace(SETTINGS, streams=("criteo_137k",)), None, execution)
    with pytest.raises(FileNotFoundError, match="--data names the folder"):
        EXPERIMENTS["ladder"].run(replace(SETTINGS, streams=("weather_aus",)), None, replace(execution, data=tmp_path))


def test_its_result_is_kept_as_that_of_every_experiment(streams, tmp_path):
    settings = replace(SETTINGS, rows=120, methods=("ftrl",), given=("none",), streams=("weather_aus",))
    execution = Execution(tmp_path, data=streams)
    result, known = run_experiment(EXPERIMENTS["ladder"], settings, None, execution)
    assert not known
    assert result.command == (
        "daes paper ladder --rows 120 --seeds 1 --methods ftrl --backbones fnn --streams weather_aus --given none"
    )
    assert sorted(path.name for path in tmp_path.glob("ladder*")) == [
        "ladder.rows120.json",
        "ladder.rows120.md",
        "ladder.rows120.png",
    ]
    assert result.where == "1 stream"
    kept = tmp_path / "work" / "ladder.rows120" / "predictions"
    (kept / "0.safetensors").write_bytes(b"of a trial that is not asked for any more")
    run_experiment(EXPERIMENTS["ladder"], settings, None, execution, overwrite=True)
    assert not (kept / "0.safetensors").exists()
    assert list(kept.glob("*.safetensors"))
    assert read_results(tmp_path) == []  # no part of the paper's page


def made_up(scores, tests=()):
    """Findings with these scores by label and stream, on one backbone."""
    return {
        "default": "ours",
        "streams": {stream: {} for stream in next(iter(scores.values()))},
        "labels": {label: {"method": label, "group": "none"} for label in scores},
        "scores": {
            label: {stream: {"fnn": {"half_auc": [value]}} for stream, value in by_stream.items()}
            for label, by_stream in scores.items()
        },
        "tests": list(tests),
    }


def test_the_best_rival_is_that_of_each_cell():
    found = made_up({"ours": {"a": 0.7, "b": 0.8}, "efd": {"a": 0.6, "b": 0.9}, "fe": {"a": 0.65, "b": 0.7}})
    assert best_of(found, ["efd", "fe"]) == {("a", "fnn"): "fe", ("b", "fnn"): "efd"}
    test, blocks = friedman_of(found, ["ours", "efd", "fe"])
    assert (test.ranks, blocks) == ((1.5, 2.0, 2.5), ["a", "b"])


def test_what_is_sure_is_counted_by_direction():
    tests = [
        {"subject": "ours", "baseline": "efd", "difference": gap, "low": gap - wide, "high": gap + wide, "delong": p}
        for gap, wide, p in ((0.1, 0.01, 1e-9), (0.1, 0.2, 1e-9), (0.1, 0.01, 0.2), (-0.1, 0.01, 1e-9))
    ]
    found = made_up({"ours": {"a": 0.7}, "efd": {"a": 0.6}}, tests)
    pairs = pair_tests(found)
    assert list(pairs) == [("ours", "efd")]
    assert count_significant(pairs["ours", "efd"]) == (1, 1, 4)


def test_the_ends_of_the_ladder():
    settings = ExperimentSettings(seeds=1, methods=("efd",), given=("none",), rungs="ends")
    chosen, _ = _choose(settings)
    assert list(chosen) == ["published gate", "the default", "EFD"]
    assert _default(chosen) == "the default"
    assert _default(_choose(replace(settings, rungs="all"))[0]) == DEFAULT
    with pytest.raises(ValueError, match="rungs must be one of all, ends, got 'few'"):
        replace(settings, rungs="few")


def test_rivals_get_what_they_are_given():
    made = rivals(["fe", "daes", "lightgbm"], ["none", "plain", "evidence", "both"])
    assert dict(made["FE"].options) == {"input": "score"}
    assert made["FE"].model == {"evidence": False}
    assert made["FE, same inputs"].options["plain"] == ["score", "value"]
    assert made["FE, evidence"].model == {}
    assert made["daes (our preset)"].options == {"plain": []}
    assert (made["daes (our preset), same inputs"].options, made["daes (our preset), same inputs"].model) == ({}, {})
    assert sum(rung.method == "lightgbm" for rung in made.values()) == 1
    few = rivals(["fe", "efd"], ["none", "both"], ["efd"])
    assert list(few) == ["FE", "EFD", "EFD, same inputs"]
