import re
from dataclasses import replace

import pytest

from daes.paper import EXPERIMENTS, Execution, ExperimentResult, ExperimentSettings
from daes.paper.page import _anchor, page, read_results, write_page
from daes.paper.running import run_experiment

from .conftest import make_result


@pytest.fixture
def results(tmp_path, criteo):
    folder = tmp_path / "docs" / "results"
    for name, data in (("value-space-limit", None), ("stationarity", criteo.what), ("estimation", criteo.what)):
        run_experiment(EXPERIMENTS[name], ExperimentSettings(seeds=1), data, Execution(folder))
    return folder


def test_the_page_tells_every_result_and_what_is_missing(results, criteo):
    page = results.parent / "reproduction.md"
    assert write_page(results, page) == 3
    text = page.read_text()
    for stem in ("estimation.criteo", "stationarity.criteo", "value-space-limit"):
        assert f"](results/{stem}.png)" in text
        assert f"](results/{stem}.json)" in text
    for name in ("estimation", "stationarity", "value-space-limit"):
        assert EXPERIMENTS[name].claim in text
        assert EXPERIMENTS[name].differs in text
    assert "`daes paper estimation --data criteo:train.parquet --seeds 1`" in text
    assert "no results of `jump-bias`" in text
    assert criteo.what.partition(":")[2] not in text
    assert "| Criteo | 26 | 13 | 3,000 | genuine |" in text


def test_the_page_says_what_has_no_command(results):
    page = results.parent / "reproduction.md"
    write_page(results, page)
    text = " ".join(page.read_text().split())
    assert "Figures 1 and 2" in text
    assert "Table 1" in text


def test_results_of_any_code_are_read(results):
    path = results / "value-space-limit.json"
    result = ExperimentResult.load(path)
    replace(result, versions={"daes": "0.0.1"}).save(results)
    assert write_page(results, results.parent / "reproduction.md") == 3
    assert "daes 0.0.1 ·" in (results.parent / "reproduction.md").read_text()


def test_links_within_the_page_lead_somewhere(results):
    page = results.parent / "reproduction.md"
    write_page(results, page)
    text = page.read_text()
    anchors = {_anchor(title) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]*)\)", text)) <= anchors
    for path in re.findall(r"\]\((results/[^)]*)\)", text):
        assert (page.parent / path).is_file()


def test_a_folder_without_results_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="must hold results"):
        write_page(tmp_path, tmp_path / "page.md")
    with pytest.raises(FileNotFoundError, match="no folder"):
        write_page(tmp_path / "nowhere", tmp_path / "page.md")


def judged_context(protocol):
    """A result in which significant fields are ahead, as far as the page needs it."""
    aucs = {"gate, significant": 0.8, "tran, significant": 0.8, "gate, insignificant": 0.7, "no modulation": 0.7}
    scores = {
        label: {"deepfm": {"auc": [auc - 1e-4, auc, auc + 1e-4], "logloss": [0.4] * 3}} for label, auc in aucs.items()
    }
    training = {"scope": "s", "batch_size": 1, "learning_rate": None, "l2": None, "backbones": ["deepfm"]}
    further = {"contexts": {}, "ranking": [], "rows_ranked": 0, "failures": []}
    found = {"training": training, "scores": scores, **further}
    return make_result("context", found, ExperimentSettings(seeds=3, protocol=protocol), "adstream:400")


def test_the_overview_has_a_row_a_result_and_names_each_experiment_once():
    text = page([judged_context("stream"), judged_context("paper")], "results")
    assert "Of 2 results it holds in 2, partly holds in 0, is not shown in 0 and does not hold in 0." in text
    rows = [line for line in text.splitlines() if line.startswith("| holds |")]
    assert [row.split(" | ")[1:3] for row in rows] == [
        ["[`context`](#fields-for-modulation)", "Simulated ad stream, 400 rows"],
        ["", "Simulated ad stream, 400 rows, the paper's protocol"],
    ]
    assert text.count("The claim **holds**.") == 2
    assert "**Judged by.** Significant fields give" in text
    assert "| Simulated ad stream | 20 | 10 | any number | simulated |" in text


def test_every_rule_is_stated():
    assert all(experiment.judged_by for experiment in EXPERIMENTS.values())


def test_other_json_beside_the_results_is_left_alone(tmp_path):
    (tmp_path / "speed.json").write_text('{"benchmark": "steps"}')
    assert read_results(tmp_path) == []
    (tmp_path / "cut.json").write_text('{"format": "daes.pa')
    with pytest.raises(ValueError, match="is not whole, valid JSON"):
        read_results(tmp_path)
