"""The experiments on variants of DAES: what each trains, and what it makes of the scores."""

import json

import numpy as np
import pytest

from daes.paper import EXPERIMENTS, DataSet, Settings

from .conftest import make_result, run_and_show, show

SMALL = Settings(rows=400, seeds=1, batch_size=200)
DATA = DataSet("adstream:400")


def options(means):
    cells = [json.loads(line) for line in (means.folder / "results.jsonl").read_text().splitlines()]
    return {cell["label"]: (cell["method"], cell["settings"]["model"].get("embedding_options", {})) for cell in cells}


def test_space_trains_both_spaces(means):
    found, markdown, verdict = run_and_show("space", SMALL, DATA, means)
    trained = options(means)
    assert trained["gate, quantile space"] == ("daes-gate", {})
    assert trained["tran, value space"] == ("daes-tran", {"value_space": True})
    assert len(found["scores"]) == 6
    assert "DeepFM AUC" in markdown
    assert "of 3 cases" in verdict


def test_beta_goes_from_0_to_1(means):
    found, _, verdict = run_and_show("beta", SMALL, DATA, means)
    trained = options(means)
    assert len(found["scores"]) == 13  # β = 0 is one model for both modulations
    assert trained["gate, β = 1"] == ("daes-gate", {"beta": 1.0})
    assert trained["tran, β = 0.2"] == ("daes-tran", {"beta": 0.2})
    assert "β = 0.5 against none" in verdict


def test_meta_count_trains_daes_and_autodis(means):
    settings = Settings(rows=400, seeds=1, batch_size=200, methods=("daes-gate", "autodis"))
    found, _, verdict = run_and_show("meta-count", settings, DATA, means)
    assert len(found["scores"]) == 10
    assert options(means)["AutoDis, M = 50"] == ("autodis", {"num_meta": 50})
    assert "of 5 cases" in verdict


def test_feature_count_adds_one_feature_at_a_time(means, monkeypatch):
    from daes.stream.adstream.source import AdStream

    whole = AdStream(10).schema
    short = type(whole)(whole.label, whole.numerical[:2], whole.categorical[:3], time=whole.time)
    monkeypatch.setattr(AdStream, "schema", property(lambda self: short))
    found, markdown, verdict = run_and_show("feature-count", SMALL, DATA, means)
    cells = [json.loads(line) for line in (means.folder / "results.jsonl").read_text().splitlines()]
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


def test_context_chooses_fields_by_their_strength(means):
    settings = Settings(rows=3000, seeds=1, batch_size=1000)
    found, markdown, verdict = run_and_show("context", settings, DataSet("adstream:3000"), means)
    strength = {row["field"]: row["strength"] for row in found["ranking"]}
    significant, weakest = found["contexts"]["significant"], found["contexts"]["insignificant"]
    assert len(significant) == len(weakest) == 3
    assert min(strength[field] for field in significant) > max(strength[field] for field in weakest)
    assert "category" in significant  # by the simulator's design the numbers of an ad depend on it
    assert found["rows_ranked"] == 2400
    assert len(found["scores"]) == 7
    assert "insignificant" in markdown
    assert "Significant against insignificant" in verdict


@pytest.mark.parametrize("name", ["beta", "meta-count"])
def test_lines_show_several_seeds_and_backbones(name, tmp_path):
    import importlib

    module = importlib.import_module(EXPERIMENTS[name].run.__module__)
    rng = np.random.default_rng(0)
    if name == "beta":
        labels = {module._label(kind, beta) for kind in module.MODULATIONS for beta in module.BETAS}
    else:
        labels = {module._label(method, number) for method in module.METHODS for number in module.COUNTS}
    scores = {
        label: {
            backbone: {measure: rng.normal(0.7, 0.001, 3).tolist() for measure in ("auc", "logloss")}
            for backbone in ("fnn", "dcnv2")
        }
        for label in sorted(labels)
    }
    training = {"scope": "s", "batch_size": 1, "learning_rate": None, "l2": None, "backbones": ["fnn", "dcnv2"]}
    found = {"training": training, "scores": scores, "failures": ["x failed"], "methods": ["daes-gate", "autodis"]}
    markdown, verdict = show(make_result(name, found, Settings(seeds=3), "adstream:400"), tmp_path)
    assert "tuned on validation data" in markdown
    assert "Failed: x failed" in markdown
    assert "ahead in" in verdict
