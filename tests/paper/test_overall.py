import numpy as np
import pytest
from scipy.stats import spearmanr, ttest_ind

from daes.paper import Settings
from daes.paper.overall import rank_agreement
from daes.paper.published import OVERALL, PAPER_METHODS

from .conftest import make_result, run_and_show, show


def published_as_ours(criteo, seeds=3, noise=0.0002):
    """Findings as if every seed gave the paper's numbers, but for some noise."""
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
                    "auc": (score.auc + noise * rng.normal(size=seeds)).tolist(),
                    "logloss": (score.logloss + noise * rng.normal(size=seeds)).tolist(),
                }
                for backbone, score in row.items()
            }
            for method, row in table.items()
        },
        "tuned": {},
        "seconds": {},
        "failures": [],
    }
    found |= {"ranks": _ranks(found), "tests": _tests(found)}
    return make_result("overall", found, Settings(seeds=seeds), criteo.spec)


def test_the_papers_own_numbers_confirm_the_papers_claim(criteo, tmp_path):
    result = published_as_ours(criteo)
    markdown, verdict = show(result, tmp_path)
    assert "DAES gate has a higher AUC than the best baseline on 6 of 6 backbones, significantly on 6" in verdict
    assert "The best average rank is that of DAES" in verdict
    assert rank_agreement(result.results["ranks"], result.results["ranks"]) == 1
    assert "| PLE |" in markdown
    test = next(t for t in result.results["tests"] if (t["method"], t["backbone"]) == ("daes-gate", "fnn"))
    assert test["baseline"] == "ple"
    scores = result.results["scores"]
    expected = ttest_ind(scores["daes-gate"]["fnn"]["auc"], scores["ple"]["fnn"]["auc"]).pvalue
    assert test["p_value"] == pytest.approx(expected, rel=0.05)  # results keep six digits


def test_rank_agreement_is_spearmans():
    rng = np.random.default_rng(0)
    ours = dict(zip(PAPER_METHODS, rng.integers(1, 9, 15).astype(float), strict=True))
    theirs = dict(zip(PAPER_METHODS, rng.integers(1, 9, 15).astype(float), strict=True))
    expected = spearmanr(list(ours.values()), list(theirs.values())).statistic
    assert rank_agreement(ours, theirs) == pytest.approx(expected, abs=1e-6)


def test_a_small_run(criteo, means):
    settings = Settings(rows=600, seeds=2, batch_size=200, methods=("fe", "ple", "daes-gate"), backbones=("fnn",))
    found, markdown, verdict = run_and_show("overall", settings, criteo, means)
    assert found["ranks"].keys() == {"fe", "ple", "daes-gate"}
    assert sorted(found["ranks"].values()) == [1, 2, 3]
    assert {test["method"] for test in found["tests"]} == {"daes-gate"}
    assert all(test["p_value"] is not None for test in found["tests"])
    assert "Spearman" in markdown
    assert "of 1 backbones" in verdict


def test_one_seed_gives_no_p_values(criteo, means):
    settings = Settings(rows=400, seeds=1, batch_size=200, methods=("fe", "daes-gate"), backbones=("fnn",))
    found, markdown, _ = run_and_show("overall", settings, criteo, means)
    assert [test["p_value"] for test in found["tests"]] == [None, None]
    assert "±" not in markdown.split("mean ± standard", 1)[1]
