"""The experiments on variants of DAES: what each trains, and what it makes of the scores."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from daes.distribution.context import ContextRanking
from daes.paper import EXPERIMENTS, ExperimentSettings
from daes.paper.ablations import BETAS, COUNTS, MODULATIONS, beta_label, count_label
from daes.paper.experiment import outcome
from daes.stream.dataset import Dataset

from .conftest import make_result, run_and_show, show

SMALL = ExperimentSettings(rows=400, seeds=1, batch_size=200)
DATA = Dataset.open("adstream:400")


def made_up(labels, seeds=3, backbones=("fnn", "dcnv2"), **further):
    """Findings with random scores."""
    rng = np.random.default_rng(0)
    scores = {
        label: {
            backbone: {measure: rng.normal(0.7, 0.001, seeds).tolist() for measure in ("auc", "logloss")}
            for backbone in backbones
        }
        for label in sorted(labels)
    }
    training = {"scope": "s", "batch_size": 1, "learning_rate": None, "l2": None, "backbones": list(backbones)}
    return {"training": training, "scores": scores, "failures": [], "notes": [], **further}


def labels_of(name):
    if name == "beta":
        return {beta_label(kind, beta) for kind in MODULATIONS for beta in BETAS}
    return {count_label(method, number) for method in ("daes-gate", "daes-tran", "autodis") for number in COUNTS}


def options(execution):
    cells = [json.loads(line) for line in (execution.folder / "results.jsonl").read_text().splitlines()]
    return {cell["label"]: (cell["method"], cell["settings"]["model"].get("embedding_options", {})) for cell in cells}


def test_space_trains_both_spaces(execution):
    found, markdown, verdict = run_and_show("space", SMALL, DATA, execution)
    trained = options(execution)
    assert trained["gate, quantile space"] == ("daes-gate", {})
    assert trained["tran, value space"] == ("daes-tran", {"value_space": True})
    assert trained["distances to quantiles"] == ("dae", {})
    assert len(found["scores"]) == 7
    assert "DeepFM AUC" in markdown
    assert "of 3 cases" in verdict
    assert "distances to quantiles: ahead in" in verdict


def test_beta_goes_from_0_to_1(execution):
    found, _, verdict = run_and_show("beta", SMALL, DATA, execution)
    trained = options(execution)
    assert len(found["scores"]) == 13  # β = 0 is one model for both modulations
    assert trained["gate, β = 1"] == ("daes-gate", {"beta": 1.0})
    assert trained["tran, β = 0.2"] == ("daes-tran", {"beta": 0.2})
    assert "β = 0.5 against no modulation: ahead in" in verdict


def test_meta_count_trains_daes_and_autodis(execution):
    settings = ExperimentSettings(rows=400, seeds=1, batch_size=200, methods=("daes-gate", "autodis"))
    found, _, verdict = run_and_show("meta-count", settings, DATA, execution)
    assert len(found["scores"]) == 10
    assert options(execution)["AutoDis, M = 50"] == ("autodis", {"num_meta": 50})
    assert "of 5 cases" in verdict


def test_feature_count_adds_one_feature_at_a_time(execution):
    schema = replace(DATA.schema, numerical=DATA.schema.numerical[:2], categorical=DATA.schema.categorical[:3])
    found, markdown, verdict = run_and_show("feature-count", SMALL, DATA.with_schema(schema), execution)
    cells = [json.loads(line) for line in (execution.folder / "results.jsonl").read_text().splitlines()]
    assert [cell["label"] for cell in cells] == [
        "categorical fields only",
        "DAES gate, 1 numerical",
        "AutoDis, 1 numerical",
        "DAES gate, 2 numerical",
        "AutoDis, 2 numerical",
    ]
    # Each feature adds M meta-embeddings, a gate and a vector for missing values, and widens the backbone.
    sizes = [cell["parameters"] for cell in cells]
    assert sizes[0] < sizes[1] < sizes[3]
    assert "price, bid" in markdown
    assert "of 2 added features" in verdict
    assert found["features"] == ["price", "bid"]


def test_context_chooses_fields_by_their_strength(execution):
    settings = ExperimentSettings(rows=3000, seeds=1, batch_size=1000)
    found, markdown, verdict = run_and_show("context", settings, Dataset.open("adstream:3000"), execution)
    strength = {row["field"]: row["strength"] for row in found["ranking"]}
    significant, weakest = found["contexts"]["significant"], found["contexts"]["insignificant"]
    assert len(significant) == len(weakest) == 3
    assert min(strength[field] for field in significant) > max(strength[field] for field in weakest)
    assert "category" in significant  # by the simulator's design the numbers of an ad depend on it
    assert found["rows_ranked"] == 1500  # the second half is judged
    assert len(found["scores"]) == 7
    assert "insignificant" in markdown
    assert "Significant fields against the weakest: ahead in" in verdict


@pytest.mark.parametrize(("protocol", "ranked"), [("stream", 500), ("paper", 800)])
def test_fields_are_ranked_on_rows_that_are_not_judged(protocol, ranked):
    from daes.paper.context import _ranking

    assert _ranking(Dataset.open("adstream:1000"), ExperimentSettings(protocol=protocol)).rows_used == ranked
    assert _ranking(Dataset.open("adstream:1000"), ExperimentSettings(protocol=protocol, rows=5000)).rows_used == ranked


def test_the_weakest_fields_are_none_of_the_significant_ones():
    from daes.paper.context import _weakest

    rows = tuple(
        SimpleNamespace(field=name, groups=size, significant=True, strength=1.0)
        for name, size in (("a", 9), ("b", 9), ("c", 9), ("d", 9), ("constant", 1))
    )
    ranking = ContextRanking(rows, ("x",), np.zeros((5, 1)), np.zeros((5, 1)), 100)
    assert ranking.significant(3) == ("a", "b", "c")
    assert _weakest(ranking) == ("d",)


@pytest.mark.parametrize("name", ["beta", "meta-count"])
def test_lines_show_several_seeds_and_backbones(name, tmp_path):
    found = made_up(labels_of(name), failures=["x failed"], notes=["y skipped"], methods=["daes-gate", "autodis"])
    markdown, verdict = show(make_result(name, found, ExperimentSettings(seeds=3), "adstream:400"), tmp_path)
    assert "tuned on validation data" in markdown
    assert "Failed: x failed" in markdown
    assert "Note: y skipped" in markdown
    assert "ahead in" in verdict


@pytest.mark.parametrize("name", ["beta", "meta-count"])
def test_without_any_score_there_is_still_a_page(name, tmp_path):
    found = made_up(labels_of(name), methods=["daes-gate", "autodis"])
    for by_backbone in found["scores"].values():
        by_backbone["fnn"] = {"auc": [None, None, None], "logloss": [None, None, None]}
    _, verdict = show(make_result(name, found, ExperimentSettings(seeds=3), "adstream:400"), tmp_path)
    assert "nan" not in verdict
    assert "DCN v2" in verdict or "–, " in verdict


def test_many_failures_are_counted():
    from daes.paper.scores import failures

    text = failures({"failures": [f"cell {number}" for number in range(50)], "notes": []})
    assert text.count("Failed: cell") == 20
    assert "30 more" in text


@pytest.mark.parametrize("name", ["space", "beta", "context"])
def test_ablations_with_methods_of_their_own_take_no_others(name):
    assert "methods" not in EXPERIMENTS[name].uses
    assert {"rows", "seeds", "backbones", "device"} <= set(EXPERIMENTS[name].uses)


@pytest.mark.parametrize("name", ["meta-count", "feature-count"])
def test_the_others_do(name):
    assert "methods" in EXPERIMENTS[name].uses


def judged(name, aucs, **further):
    """What is made of these AUCs, each the middle one of three seeds."""
    scores = {
        label: {"deepfm": {"auc": [auc - 1e-4, auc, auc + 1e-4], "logloss": [0.4] * 3}} for label, auc in aucs.items()
    }
    found = {"training": {"backbones": ["deepfm"]}, "scores": scores, **further}
    parts, sentence = EXPERIMENTS[name].judge(make_result(name, found, ExperimentSettings(seeds=3), "adstream:400"))
    return outcome(parts), sentence


@pytest.mark.parametrize(
    ("gain", "expected"), [(0.01, "holds"), (0.00001, "not shown"), (0.0, "does not hold"), (-0.01, "does not hold")]
)
def test_variants_are_judged_by_how_often_they_are_significantly_ahead(gain, expected):
    kinds = ("gate", "tran", "no modulation")
    spaces = {"quantile space": 0.7 + gain, "value space": 0.7}
    aucs = {f"{kind}, {space}": auc for kind in kinds for space, auc in spaces.items()}
    assert judged("space", {**aucs, "distances to quantiles": 0.9})[0] == expected
    betas = {f"{kind}, β = {beta}": 0.9 if beta == 1 else 0.7 + gain for kind in kinds[:2] for beta in (0.5, 1)}
    assert judged("beta", {"no modulation (β = 0)": 0.7, **betas})[0] == expected
    choices = {"significant": 0.7 + gain, "insignificant": 0.7, "smallest": 0.9}
    contexts = {f"{kind}, {choice}": auc for kind in kinds[:2] for choice, auc in choices.items()}
    assert judged("context", {"no modulation": 0.9, **contexts})[0] == expected


def test_half_of_the_cases_are_not_most():
    aucs = {"gate, significant": 0.8, "gate, insignificant": 0.7, "tran, significant": 0.6, "tran, insignificant": 0.7}
    claim, sentence = judged("context", aucs)
    assert claim == "does not hold"
    assert "ahead in 1 of 2 cases, significantly in 1 and significantly behind in 1" in sentence


def by_count(**ends):
    """AUCs of methods at each M, from the one at M = 10 to the one at 50."""
    titles = {"autodis": "AutoDis", "gate": "DAES gate", "tran": "DAES tran"}
    return {
        f"{titles[method]}, M = {number}": auc
        for method, (first, last) in ends.items()
        for number, auc in zip((10, 20, 30, 40, 50), np.linspace(first, last, 5), strict=True)
    }


def test_without_a_pair_nothing_is_judged():
    assert judged("context", {"no modulation": 0.7}) == ("–", "Significant fields against the weakest: no results.")
    assert judged("meta-count", by_count(gate=(0.7, 0.8)), methods=["daes-gate"])[0] == "–"
    assert judged("meta-count", by_count(autodis=(0.7, 0.8)), methods=["autodis"])[0] == "–"


@pytest.mark.parametrize(
    ("daes", "autodis", "expected", "rises", "falls"),
    [
        ((0.75, 0.76), (0.71, 0.7), "holds", 2, 1),
        ((0.76, 0.75), (0.7, 0.71), "partly holds", 0, 0),
        ((0.6, 0.59), (0.7, 0.71), "does not hold", 0, 0),
        ((0.6, 0.6), (0.7, 0.7), "does not hold", 0, 0),
    ],
)
def test_more_meta_embeddings_should_help_daes_alone(daes, autodis, expected, rises, falls):
    aucs = by_count(autodis=autodis, gate=daes, tran=daes)
    claim, sentence = judged("meta-count", aucs, methods=["autodis", "daes-gate", "daes-tran"])
    assert claim == expected
    assert sentence.endswith(f"of DAES rises in {rises} of 2 cases, that of AutoDis falls in {falls} of 1.")


def test_most_added_features_should_help():
    aucs = {"categorical fields only": 0.6}
    for number, auc in enumerate((0.65, 0.64, 0.7), start=1):
        aucs |= {f"DAES gate, {number} numerical": auc, f"AutoDis, {number} numerical": 0.62}
    further = {"methods": ["daes-gate", "autodis"], "features": ["a", "b", "c"]}
    claim, sentence = judged("feature-count", aucs, **further)
    assert claim == "holds"
    assert "ahead in 3 of 3 cases" in sentence  # without a feature there is nothing to compare
    assert sentence.endswith("2 of 3 added features raise the AUC of DAES.")
    falling = {label: 1.3 - auc if label.startswith("DAES") else auc for label, auc in aucs.items()}
    assert judged("feature-count", {**falling, "categorical fields only": 0.7}, **further)[0] == "partly holds"


def test_a_row_a_place_and_a_column_a_method(tmp_path):
    found = made_up(labels_of("beta"), backbones=("deepfm",))
    found["scores"]["tran, β = 0.2"]["deepfm"] = {"auc": [0.9, 0.9, 0.9], "logloss": [0.1, 0.2, 0.3]}
    markdown, _ = show(make_result("beta", found, ExperimentSettings(seeds=3), "adstream:400"), tmp_path)
    assert "**DeepFM:**\n\n| β | gate, AUC | tran, AUC | gate, LogLoss | tran, LogLoss |\n" in markdown
    rows = [line.strip("| ").split(" | ") for line in markdown.splitlines() if line.startswith("| 0")]
    assert [row[0] for row in rows] == ["0", "0.2", "0.4", "0.5", "0.6", "0.8"]
    assert rows[0][1:3] == rows[0][2:1:-1] * 2  # β = 0 is one model
    assert rows[1][2] == "**0.9000 ± 0.0000**"
    assert rows[1][4] == "**0.2000 ± 0.1000**"
    assert sum(cell.startswith("**") for row in rows for cell in row) == 2


def test_a_p_value_that_underflows_is_told_by_a_bound():
    row = {"field": "C1", "cardinality": 9, "strength": 0.05, "p_value": 0.0, "significant": True}
    found = made_up(["no modulation"], contexts={"significant": ["C1"]}, ranking=[row], rows_ranked=100)
    markdown = EXPERIMENTS["context"].markdown(
        make_result("context", found, ExperimentSettings(seeds=3), "adstream:400")
    )
    assert "| C1 | 9 | 0.0500 | < 0.0001 | yes |" in markdown
