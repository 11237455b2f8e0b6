import numpy as np
import pytest

from daes.formatting import scientific
from daes.paper import EXPERIMENTS, Execution, ExperimentSettings, figures
from daes.stream.dataset import Dataset

from .conftest import make_result, run_and_show


def test_the_simulated_stream_has_the_length_asked_for(execution, tmp_path):
    found, markdown, verdict = run_and_show(
        "estimation", ExperimentSettings(rows=60_000, seeds=2), Dataset.open("adstream"), execution
    )
    for kind in ("clustered", "spread"):
        assert found[kind]["values"] == 60_000
        share, ten_thousand = found[kind]["reservoirs"]
        assert (share["slots"], ten_thousand["slots"]) == ({"clustered": 204, "spread": 165}[kind], 10_000)
        for part in (share, ten_thousand):
            assert part["reservoir"]["draws"] == 60_000 - part["slots"]
            assert part["jump"]["draws"] == pytest.approx(part["draws_expected"]["jump"], rel=0.2)
        assert np.mean(ten_thousand["jump"]["masses"]) < 3 * ten_thousand["kl_by_chance"]
    assert found["clustered"]["bins"] < found["spread"]["bins"]
    assert "5.97" in markdown
    assert "clicks_7d" in verdict


def test_genuine_columns(criteo, execution):
    found, markdown, _ = run_and_show("estimation", ExperimentSettings(seeds=1), criteo, execution)
    assert found["clustered"]["feature"] == "I3"
    assert 2500 < found["clustered"]["values"] < 2900  # a tenth is missing
    assert "**I5**" in markdown


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    execution = Execution(tmp_path_factory.mktemp("estimation") / "work")
    return run_and_show("estimation", ExperimentSettings(rows=60_000, seeds=2), Dataset.open("adstream"), execution)


def test_each_reservoir_has_its_sentence(shown):
    found, _, verdict = shown
    for kind in ("clustered", "spread"):
        for part in found[kind]["reservoirs"]:
            assert f"- **{found[kind]['feature']}**, {part['slots']:,} slots" in verdict


def test_the_verdict_says_where_the_claim_fails(shown):
    found, _, _ = shown
    part = {
        **found["spread"]["reservoirs"][0],
        "jump": {"masses": [0.1, 0.3], "buckets": [0.05, 0.05], "draws": 1000.0},
    }
    for masses, judged in ((4.0, "as claimed"), (0.4, "less than claimed"), (0.1, "against the claim")):
        spread = {
            **found["spread"],
            "order-statistics": {"masses": [masses], "buckets": [0.6]},
            "reservoirs": [part],
        }
        result = make_result("estimation", {**found, "spread": spread}, ExperimentSettings(seeds=2), "adstream")
        sentence = EXPERIMENTS["estimation"].verdict(result).split("impressions_7d")[1]
        assert f"{scientific(masses / 0.2)} by masses ({judged}) and 12.0 by buckets (as claimed)" in sentence


@pytest.mark.parametrize(
    ("masses", "draws", "parts", "said"),
    [
        (4.0, 1000.0, (True, True), "times by buckets."),
        (0.4, 1000.0, (False, True), "(less than claimed)."),
        (0.1, 9000.0, (False, False), "(against the claim where below 1)."),
    ],
)
def test_the_claim_is_judged_by_both_of_its_parts(shown, masses, draws, parts, said):
    part = {
        "slots": 100,
        "kl_by_chance": 0.1,
        "reservoir": {"masses": [0.2], "buckets": [0.05], "draws": 100_000.0},
        "jump-paper": {"masses": [0.2], "buckets": [0.05], "draws": draws},
        "jump": {"masses": [0.2], "buckets": [0.05], "draws": draws},
    }
    kind = {
        "feature": "x",
        "values": 100_100,
        "order-statistics": {"masses": [masses], "buckets": [masses / 4]},
        "reservoirs": [part],
    }
    kinds = {"clustered": {**kind, "feature": "y"}, "spread": kind}
    result = make_result("estimation", kinds, ExperimentSettings(seeds=1), "adstream")
    judged, sentence = EXPERIMENTS["estimation"].judge(result)
    assert judged == parts
    assert sentence.endswith(said)
    ratio = scientific(masses / 0.2, 1)
    assert f"error of order statistics (OS) is {ratio} times that of JRS by masses, {ratio} times" in sentence
    assert ("its error is 1.0 times that of RS (against the claim)" in sentence) == (not parts[1])


def test_calls_are_judged_by_the_share_of_the_paper_alone(shown):
    found, _, _ = shown
    every = [part["jump-paper"]["draws"] / part["reservoir"]["draws"] for part in found["clustered"]["reservoirs"]]
    assert every[0] < 0.05 < every[1]
    _, sentence = EXPERIMENTS["estimation"].judge(
        make_result("estimation", found, ExperimentSettings(seeds=2), "adstream")
    )
    assert f"{100 * every[0]:.1f}" in sentence
    assert f"{100 * every[1]:.1f}" not in sentence


def test_the_figure_shows_every_reservoir_and_the_paper_by_itself(shown):
    found, _, _ = shown
    with figures.style():
        figure = EXPERIMENTS["estimation"].draw(
            make_result("estimation", found, ExperimentSettings(seeds=2), "adstream")
        )
    for panel, kind, feature in zip(figure.axes, ("clustered", "spread"), ("I3", "I5"), strict=True):
        texts = [text.get_text() for text in panel.texts]
        for part in found[kind]["reservoirs"]:
            assert f"{part['slots']:,} slots" in texts
        (paper,) = [text for text in panel.texts if text.get_text().startswith("the paper:")]
        assert f"Criteo's {feature}" in paper.get_text()
        diamonds = [line for line in panel.lines if line.get_marker() == "D"]
        assert all(line.get_ydata()[0] > paper.get_position()[1] for line in diamonds)
        assert len(diamonds) == 3


@pytest.mark.parametrize("rows", [1, 30, 999])
def test_too_few_values_are_an_error(execution, rows):
    with pytest.raises(ValueError, match=f"clicks_7d of adstream must have 1,000 finite values or more, got {rows}"):
        run_and_show("estimation", ExperimentSettings(rows=rows, seeds=1), Dataset.open("adstream"), execution)
