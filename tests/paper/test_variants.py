import json
from dataclasses import replace
from importlib import import_module
from time import monotonic

import pytest

from daes.backbone import BACKBONES
from daes.paper import Execution, ExperimentSettings, OutOfTimeError
from daes.paper.published import L2_WEIGHTS, LEARNING_RATES
from daes.paper.variants import L2, LEARNING_RATE, Variant, suitable_batch_size, train_variants
from daes.stream.dataset import Dataset

DATA = Dataset.open("adstream:600")
SETTINGS = ExperimentSettings(seeds=2, batch_size=200)
VARIANTS = {"linear": Variant("fe"), "bins": Variant("efd", {"num_bins": 4})}


def lines(execution):
    return [json.loads(line) for line in (execution.folder / "results.jsonl").read_text().splitlines()]


def test_every_variant_backbone_and_seed_is_trained_as_asked(execution):
    found = train_variants(SETTINGS, DATA, execution, VARIANTS, ["fnn", "deepfm"])
    assert found["scores"].keys() == VARIANTS.keys()
    for by_backbone in found["scores"].values():
        assert list(by_backbone) == ["fnn", "deepfm"]
        for measures in by_backbone.values():
            assert {name: len(values) for name, values in measures.items()} == dict.fromkeys(
                ("auc", "whole_auc", "logloss", "whole_logloss"), 2
            )
    cells = lines(execution)
    assert len(cells) == 8
    for cell in cells:
        settings = cell["settings"]
        assert settings["train"]["batch_size"] == 200
        assert settings["train"]["learning_rate"] == LEARNING_RATE
        assert settings["model"]["l2"] == L2
        assert settings["model"].get("embedding_options") == ({"num_bins": 4} if cell["label"] == "bins" else None)
    first = next(cell for cell in cells if (cell["label"], cell["backbone"], cell["seed"]) == ("bins", "deepfm", 1))
    assert found["scores"]["bins"]["deepfm"]["auc"][1] == first["metrics"]["half_auc"]
    assert found["scores"]["bins"]["deepfm"]["whole_auc"][1] == first["metrics"]["auc"]


def test_finished_trials_are_used_again_and_more_seeds_add_to_them(execution):
    once = train_variants(SETTINGS, DATA, execution, VARIANTS, ["fnn"])
    before = (execution.folder / "results.jsonl").read_text()
    again = train_variants(replace(SETTINGS, seeds=3), DATA, execution, VARIANTS, ["fnn"])
    assert (execution.folder / "results.jsonl").read_text().startswith(before)
    assert len(lines(execution)) == 6
    assert again["scores"]["bins"]["fnn"]["auc"][:2] == once["scores"]["bins"]["fnn"]["auc"]


def test_the_deadline_stops_after_the_trial_in_progress(execution):
    done = []
    hurried = Execution(execution.folder, deadline=monotonic() + 3600, note=done.append)

    def expire(line):
        done.append(line)
        object.__setattr__(hurried, "deadline", 0.0)

    # The deadline is handed over when the cells are begun, so it passes between two calls here.
    first = train_variants(replace(SETTINGS, seeds=1), DATA, hurried, {"linear": Variant("fe")}, ["fnn"])
    expire("")
    with pytest.raises(OutOfTimeError, match="1 of 4 trials are done"):
        train_variants(SETTINGS, DATA, hurried, VARIANTS, ["fnn"])
    whole = train_variants(SETTINGS, DATA, execution, VARIANTS, ["fnn"])
    assert whole["scores"]["linear"]["fnn"]["auc"][0] == first["scores"]["linear"]["fnn"]["auc"][0]


def test_tuning_gives_every_method_the_same_grid_and_takes_the_best(execution):
    settings = replace(SETTINGS, seeds=1, tune=True)
    found = train_variants(settings, DATA, execution, {"linear": Variant("fe")}, ["fnn"])
    cells = lines(execution)
    tuning = [cell for cell in cells if cell["rows"] == 150]  # the first quarter of the stream
    grid = {(cell["settings"]["train"]["learning_rate"], cell["settings"]["model"]["l2"]) for cell in tuning}
    assert grid == {(rate, weight) for rate in LEARNING_RATES for weight in L2_WEIGHTS}
    best = min(tuning, key=lambda cell: cell["metrics"]["half_logloss"])["settings"]
    chosen = found["tuned"]["linear"]["fnn"]
    assert chosen == {"learning_rate": best["train"]["learning_rate"], "l2": best["model"]["l2"]}
    (final,) = (cell for cell in cells if cell["rows"] == 600)
    assert final["settings"]["train"]["learning_rate"] == chosen["learning_rate"]


def test_a_rival_is_trained_once_for_all_backbones_and_seeds_and_not_tuned(execution):
    variants = {"linear": Variant("fe"), "rival": Variant("ftrl")}
    found = train_variants(replace(SETTINGS, tune=True), DATA, execution, variants, ["fnn", "deepfm"])
    (only,) = (cell for cell in lines(execution) if cell["label"] == "rival")
    assert (only["rows"], only["seed"]) == (600, 0)
    auc = [only["metrics"]["half_auc"]]
    assert [found["scores"]["rival"][backbone]["auc"] for backbone in ("fnn", "deepfm")] == [auc, auc]
    assert len(found["scores"]["linear"]["deepfm"]["auc"]) == 2
    assert {(test["backbone"], test["measure"]) for test in found["row_tests"]} == {
        (backbone, measure) for backbone in ("fnn", "deepfm") for measure in ("auc", "logloss")
    }


def test_the_papers_protocol_reports_the_test_part(execution):
    found = train_variants(
        replace(SETTINGS, seeds=1, protocol="paper"), DATA, execution, {"linear": Variant("fe")}, ["fnn"]
    )
    (cell,) = lines(execution)
    assert found["scores"]["linear"]["fnn"] == {
        "auc": [cell["metrics"]["auc"]],
        "logloss": [cell["metrics"]["logloss"]],
    }
    assert "test part" in found["training"]["scope"]


def test_a_trial_that_fails_is_reported_and_does_not_stop_the_others(execution):
    variants = {"linear": Variant("fe"), "wrong": Variant("fe", {"no_such_option": 1})}
    found = train_variants(replace(SETTINGS, seeds=1), DATA, execution, variants, ["fnn"])
    assert found["scores"]["linear"]["fnn"]["auc"][0] is not None
    assert found["scores"]["wrong"]["fnn"]["auc"] == [None]
    assert "no_such_option" in found["failures"][0]


def test_every_backbone_can_be_trained_as_published(execution):
    found = train_variants(replace(SETTINGS, seeds=1), DATA, execution, {"linear": Variant("fe")}, list(BACKBONES))
    assert found["failures"] == []
    assert all(found["scores"]["linear"][backbone]["auc"][0] is not None for backbone in BACKBONES)


def test_batch_sizes_are_powers_of_two_within_bounds():
    for rows in (1, 1000, 150_000, 3_000_000, 10**9):
        size = suitable_batch_size(rows)
        assert size & (size - 1) == 0
        assert 256 <= size <= 8192


def test_variants_with_columns_of_their_own_are_one_grid(execution):
    notes = []
    variants = {
        "none": Variant("fe", numerical=()),
        "two": Variant("fe", numerical=("price", "bid")),
        "all": Variant("fe"),
    }
    found = train_variants(SETTINGS, DATA, replace(execution, note=notes.append), variants, ["fnn"])
    assert list(found["scores"]) == ["none", "two", "all"]
    assert [note.split()[0] for note in notes] == [f"{done}/6" for done in range(1, 7)]
    sizes = {cell["label"]: cell["parameters"] for cell in lines(execution)}
    assert sizes["none"] < sizes["two"] < sizes["all"]


def test_tuning_sees_a_quarter_of_the_rows_that_there_are(execution):
    settings = replace(SETTINGS, seeds=1, tune=True, rows=100_000)  # more than the stream has
    train_variants(settings, DATA, execution, {"linear": Variant("fe")}, ["fnn"])
    assert sorted({cell["rows"] for cell in lines(execution)}) == [150, 600]


def test_tuning_sees_a_quarter_of_a_stream_of_unknown_length(execution, tmp_path):
    path = tmp_path / "train.txt"
    line = "\t".join(["1", *["5"] * 13, *["00ab"] * 26]) + "\n"
    path.write_text("".join(line if row % 3 else "0" + line[1:] for row in range(400)))
    data = Dataset.open(f"criteo:{path}")
    assert data.num_rows is None
    train_variants(replace(SETTINGS, seeds=1, tune=True), data, execution, {"linear": Variant("fe")}, ["fnn"])
    assert sorted({cell["rows"] for cell in lines(execution)}) == [100, 400]


def test_nothing_is_fitted_on_rows_that_are_judged(execution):
    settings = replace(SETTINGS, seeds=1, tune=True)
    train_variants(settings, DATA, execution, {"linear": Variant("fe")}, ["fnn"])
    assert {(cell["rows"], cell["settings"]["sample_rows"]) for cell in lines(execution)} == {(150, 75), (600, 300)}
    once = ExperimentSettings(seeds=1, batch_size=10_000)
    train_variants(
        once, Dataset.open("adstream:30000"), execution, {"linear": Variant("fe", numerical=("price",))}, ["fnn"]
    )
    assert lines(execution)[-1]["settings"]["sample_rows"] == 10_000


def test_a_score_that_is_not_defined_is_none(execution):
    found = train_variants(replace(SETTINGS, rows=1), DATA, execution, {"linear": Variant("fe")}, ["fnn"])
    assert found["scores"]["linear"]["fnn"]["auc"] == [None, None]  # one row has one class


def test_skipped_batches_are_noted_and_tuning_avoids_them(execution, monkeypatch):
    compare = import_module("daes.experiments.compare")  # the function of this name hides the module

    def skipping(cell, data, progress=None):
        wild = cell.train.learning_rate == max(LEARNING_RATES)
        return compare.TrialResult(
            cell.label,
            cell.method,
            cell.backbone,
            cell.seed,
            cell.protocol,
            metrics={"half_logloss": 0.1 if wild else 0.6},
            rows=600,
            bad_batches=2 if wild else cell.seed,
        )

    monkeypatch.setattr(compare, "run_trial", skipping)
    found = train_variants(replace(SETTINGS, tune=True), DATA, execution, {"linear": Variant("fe")}, ["fnn"])
    assert found["tuned"]["linear"]["fnn"]["learning_rate"] < max(LEARNING_RATES)
    assert found["failures"] == []
    assert found["notes"][0].startswith("tuning linear on fnn, seed 0: 2 batches were skipped")
    assert found["notes"][-1].startswith("linear on fnn, seed 1: 1 batch was skipped")


def test_tuning_that_fails_is_reported(execution):
    settings = replace(SETTINGS, seeds=1, tune=True)
    found = train_variants(settings, DATA, execution, {"wrong": Variant("fe", {"no_such_option": 1})}, ["fnn"])
    assert len(found["failures"]) == len(LEARNING_RATES) * len(L2_WEIGHTS) + 1
    assert found["failures"][0].startswith("tuning wrong on fnn, seed 0: ")
    assert found["failures"][-1].startswith("wrong on fnn, seed 0: ")


def test_the_default_recipe_trains_as_the_defaults_do(criteo, execution):
    settings = ExperimentSettings(rows=300, seeds=1, recipe="default", backbones=("fnn",))
    found = train_variants(settings, criteo, execution, {"fe": Variant("fe"), "efd": Variant("efd")}, ())
    lines = (execution.folder / "results.jsonl").read_text().splitlines()
    settings_of = {line["label"]: line["settings"] for line in map(json.loads, lines)}
    assert settings_of["fe"]["train"]["optimizer"] == "adagrad"
    assert settings_of["fe"]["train"]["batch_size"] == found["training"]["batch_size"] == 8
    assert settings_of["fe"]["model"]["embedding_options"] == {"input": "score"}
    assert settings_of["efd"]["refit"]
    assert "backbone_options" not in settings_of["fe"]["model"]
    assert [(t["subject"], t["baseline"], t["measure"]) for t in found["row_tests"]] == [
        ("fe", "efd", "auc"),
        ("fe", "efd", "logloss"),
    ]
    with pytest.raises(ValueError, match="must be off with recipe=default"):
        ExperimentSettings(recipe="default", tune=True)


@pytest.mark.parametrize("recipe", ["paper", "default"])
def test_rivals_are_trained_beside_methods(recipe, execution):
    settings = replace(SETTINGS, seeds=1, recipe=recipe)
    found = train_variants(settings, DATA, execution, {"FTRL": Variant("ftrl"), "fe": Variant("fe")}, ["fnn"])
    assert found["failures"] == []
    assert found["scores"]["FTRL"]["fnn"]["auc"][0] > 0
