import re

import numpy as np
import pytest
from scipy.stats import spearmanr, ttest_ind

from daes.formatting import fixed
from daes.paper import EXPERIMENTS, ExperimentSettings
from daes.paper.overall import rank_agreement
from daes.paper.published import _OVERALL, OVERALL, PAPER_METHODS

from .conftest import make_result, run_and_show, show


def published_as_ours(criteo, seeds=3, noise=0.0002, change=None):
    """Findings as if every seed gave the paper's numbers, but for some noise and for what `change` does to them."""
    from daes.paper.overall import _ranks, _tests

    rng = np.random.default_rng(0)
    table = OVERALL["criteo"]
    found = {
        "training": {
            "protocol": "stream",
            "scope": "second half",
            "batch_size": 8192,
            "learning_rate": 1e-3,
            "l2": 1e-6,
            "backbones": list(table["efd"]),
        },
        "scores": {
            method: {
                backbone: {
                    "auc": (score["auc"] + noise * rng.normal(size=seeds)).tolist(),
                    "logloss": (score["logloss"] + noise * rng.normal(size=seeds)).tolist(),
                }
                for backbone, score in row.items()
            }
            for method, row in table.items()
        },
        "tuned": {},
        "seconds": {},
        "failures": [],
    }
    if change is not None:
        change(found["scores"])
    found |= {"ranks": _ranks(found, "auc"), "logloss_ranks": _ranks(found, "logloss"), "tests": _tests(found)}
    return make_result("overall", found, ExperimentSettings(seeds=seeds), criteo.what)


def test_the_papers_own_numbers_confirm_the_papers_claim(criteo, tmp_path):
    result = published_as_ours(criteo)
    markdown, verdict = show(result, tmp_path)
    assert "Ahead of the best baseline: DAES gate on 6 of 6 (significantly on 6, significantly behind on 0)" in verdict
    assert "Best average rank: DAES" in verdict
    assert rank_agreement(result.results["ranks"], result.results["ranks"]) == 1
    assert "| PLE |" in markdown
    test = next(t for t in result.results["tests"] if (t["method"], t["backbone"]) == ("daes-gate", "fnn"))
    assert test["baseline"] == "ple"
    scores = result.results["scores"]
    expected = ttest_ind(scores["daes-gate"]["fnn"]["auc"], scores["ple"]["fnn"]["auc"]).pvalue
    assert test["p_value"] == pytest.approx(expected, rel=0.05)  # results keep six digits


def worse(*methods):
    """Their AUC is below that of every baseline."""

    def change(scores):
        for method in methods:
            for measures in scores[method].values():
                measures["auc"] = [0.5 + 1e-6 * seed for seed in range(3)]

    return change


ALL = "on 6 of 6 (significantly on 6, significantly behind on 0)"
NONE = "on 0 of 6 (significantly on 0, significantly behind on 6)"


@pytest.mark.parametrize(
    ("change", "parts", "shown", "best"),
    [
        (None, [True, True], (ALL, ALL), "DAES"),
        (worse("daes-tran"), [True, False], (ALL, NONE), "DAES gate"),
        (worse("daes-gate", "daes-tran"), [False, False], (NONE, NONE), "PLE"),
    ],
)
def test_the_claim_is_judged_by_both_forms(criteo, change, parts, shown, best):
    judged, sentence = EXPERIMENTS["overall"].judge(published_as_ours(criteo, change=change))
    assert judged == parts
    forms = "DAES gate {}, DAES tran {} backbones".format(*shown)
    assert sentence.startswith(f"Ahead of the best baseline: {forms}, by a t-test between seeds.")
    assert f" Best average rank: {best}" in sentence


def test_nothing_is_judged_without_the_papers_forms(criteo):
    def leave_out(scores):
        del scores["daes-gate"], scores["daes-tran"]

    judged, sentence = EXPERIMENTS["overall"].judge(published_as_ours(criteo, change=leave_out))
    assert judged == []
    assert sentence == "Best average rank: PLE."


def test_each_backbone_has_one_row_of_tests(criteo):
    result = published_as_ours(criteo)
    markdown = EXPERIMENTS["overall"].markdown(result)
    rows = [line for line in markdown.splitlines() if line.startswith("| DAES gate | FNN |")]
    (row,) = rows
    auc, logloss = (
        next(
            t for t in result.results["tests"] if (t["method"], t["backbone"], t["measure"]) == ("daes-gate", "fnn", m)
        )
        for m in ("auc", "logloss")
    )
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[2:4] == ["PLE", fixed(auc["difference"], sign=True)]
    assert cells[5:7] == ["PLE", fixed(logloss["difference"], sign=True)]


def test_rank_agreement_is_spearmans():
    rng = np.random.default_rng(0)
    ours = dict(zip(PAPER_METHODS, rng.integers(1, 9, 15).astype(float), strict=True))
    theirs = dict(zip(PAPER_METHODS, rng.integers(1, 9, 15).astype(float), strict=True))
    expected = spearmanr(list(ours.values()), list(theirs.values())).statistic
    assert rank_agreement(ours, theirs) == pytest.approx(expected, abs=1e-6)


def test_a_small_run(criteo, execution):
    settings = ExperimentSettings(
        rows=600, seeds=2, batch_size=200, methods=("fe", "ple", "daes-gate"), backbones=("fnn",)
    )
    found, markdown, verdict = run_and_show("overall", settings, criteo, execution)
    assert found["ranks"].keys() == {"fe", "ple", "daes-gate"}
    assert sorted(found["ranks"].values()) == [1, 2, 3]
    assert {test["method"] for test in found["tests"]} == {"daes-gate"}
    assert all(test["p_value"] is not None for test in found["tests"])
    # Ranks among three are not to be compared with ranks among fifteen.
    assert "Spearman" not in markdown
    assert "by AUC, paper" not in markdown
    assert re.search(r"DAES gate on [01] of 1 ", verdict)


def test_one_seed_is_tested_on_the_rows(criteo, execution):
    settings = ExperimentSettings(rows=400, seeds=1, batch_size=200, methods=("fe", "daes-gate"), backbones=("fnn",))
    found, markdown, _ = run_and_show("overall", settings, criteo, execution)
    assert all(0 < test["p_value"] <= 1 for test in found["tests"])
    assert all("DeLong" in test["test"] for test in found["tests"])
    assert "p: paired DeLong test" in markdown
    assert "±" not in markdown.split("mean ± standard", 1)[1]


def test_the_papers_figures_and_ranks_stand_beside_ours(criteo, tmp_path):
    markdown, _ = show(published_as_ours(criteo), tmp_path)
    theirs = markdown.split("The paper's figures, Criteo:")[1]
    for measure in ("auc", "logloss"):
        row = [f"{score[measure]:.4f}" for score in OVERALL["criteo"]["dlrm"].values()]
        assert f"| DLRM | {' | '.join(row)} |" in theirs
    assert "| method | average rank by AUC | by LogLoss | by AUC, paper |" in markdown
    assert re.search(r"\| DAES gate \| .* \| 1\.50 \|", markdown)
    assert "Spearman" in markdown


def test_the_papers_ranks_on_all_backbones_are_its_last_column(criteo):
    from daes.paper.overall import _published_ranks

    column = {method: float(row.split()[-1]) for method, row in _OVERALL["criteo"].items()}
    assert _published_ranks(published_as_ours(criteo)) == pytest.approx(column, abs=0.005)


def test_our_preset_is_tested_against_the_best_of_the_papers_methods(criteo, tmp_path):
    def add(scores):
        scores["daes"] = {
            backbone: {"auc": [auc + 1e-6 * seed for seed in range(3)], "logloss": [0.4, 0.4, 0.4]}
            for backbone, auc in zip(scores["efd"], [0.9, 0.9, 0.9, 0.9, 0.1, 0.1], strict=True)
        }

    result = published_as_ours(criteo, change=add)
    _, verdict = show(result, tmp_path)
    assert (
        "Our preset `daes` is ahead of the best of the paper's 15 methods on 4 of 6, significantly on 4 and "
        "significantly behind on 2." in verdict
    )
    assert {t["baseline"] for t in result.results["tests"] if t["method"] == "daes"} <= {"daes-gate", "daes-tran"}


def test_a_method_without_results_has_no_rank(criteo, tmp_path):
    def fail(scores):
        for measures in scores["dlrm"].values():
            measures.update(auc=[None] * 3, logloss=[None] * 3)
        scores["fe"]["fnn"].update(auc=[float("nan")] * 3, logloss=[float("nan")] * 3)

    result = published_as_ours(criteo, change=fail)
    assert set(PAPER_METHODS) - result.results["ranks"].keys() == {"dlrm"}
    markdown, _ = show(result, tmp_path)
    assert "| DLRM | – |" in markdown
    assert "Spearman" not in markdown


def test_scores_that_are_not_defined_do_not_stop_the_experiment(criteo, execution):
    settings = ExperimentSettings(rows=1, seeds=2, methods=("fe", "ple", "daes-gate"), backbones=("fnn",))
    found, _, _ = run_and_show("overall", settings, criteo, execution)
    assert found["ranks"] == {}
    assert {test["measure"] for test in found["tests"]} <= {"logloss"}


def test_the_claim_is_what_the_papers_table_says():
    """Where a form of DAES is not better than every baseline."""
    exceptions = {
        (data, backbone, measure)
        for data, rows in OVERALL.items()
        for form in ("daes-gate", "daes-tran")
        for backbone, score in rows[form].items()
        for measure, sign in (("auc", 1), ("logloss", -1))
        for method, row in rows.items()
        if not method.startswith("daes-") and sign * row[backbone][measure] >= sign * score[measure]
    }
    assert exceptions == {("industrial", "ipnn", "logloss")}
    assert "EFD with IPNN on the industrial data" in " ".join(EXPERIMENTS["overall"].claim.split())


def test_both_panels_have_one_scale_around_the_median(criteo):
    figure = EXPERIMENTS["overall"].draw(published_as_ours(criteo, noise=0.0))
    ours, theirs = figure.axes
    assert ours.get_xlim() == theirs.get_xlim()
    fnn = [row["fnn"]["auc"] for row in OVERALL["criteo"].values()]
    dots = [line.get_xdata()[0] for line in theirs.lines if line.get_marker() == "o"]
    assert sorted(dots) == pytest.approx(sorted(100 * (np.array(fnn) - np.median(fnn))), abs=1e-5)
