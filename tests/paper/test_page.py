import re
from dataclasses import replace

import pytest

from daes.paper import EXPERIMENTS, Means, Result, Settings
from daes.paper.page import _anchor, _rule, _word, page, write_page
from daes.paper.running import run_experiment

from .conftest import make_result


@pytest.fixture
def results(tmp_path, criteo):
    folder = tmp_path / "docs" / "results"
    for name, data in (("value-space-limit", None), ("stationarity", criteo), ("estimation", criteo)):
        run_experiment(EXPERIMENTS[name], Settings(seeds=1), data, folder, Means(folder))
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
    assert criteo.spec.partition(":")[2] not in text
    assert "| Criteo | 26 | 13 | 3,000 | genuine |" in text


def test_the_page_says_what_has_no_command(results):
    page = results.parent / "reproduction.md"
    write_page(results, page)
    text = " ".join(page.read_text().split())
    assert "Figures 1 and 2" in text
    assert "Table 1" in text


def test_results_of_any_code_are_read(results):
    path = results / "value-space-limit.json"
    result = Result.load(path)
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


def scores(aucs, methods=None):
    """Findings of an ablation: three seeds around each AUC."""
    return {
        "training": {"backbones": ["deepfm"]},
        "scores": {
            label: {"deepfm": {"auc": [auc - 1e-4, auc, auc + 1e-4], "logloss": [0.4] * 3}}
            for label, auc in aucs.items()
        },
        "methods": methods or [],
    }


def judged(name, aucs, methods=None):
    result = make_result(name, scores(aucs, methods), Settings(seeds=3), "adstream:400")
    parts, sentence = _rule(EXPERIMENTS[name])(result)
    return _word(parts), sentence


@pytest.mark.parametrize(
    ("gain", "word"), [(0.01, "holds"), (0.00001, "partly"), (0.0, "does not hold"), (-0.01, "does not hold")]
)
def test_variants_are_judged_by_how_often_they_are_significantly_ahead(gain, word):
    kinds = ("gate", "tran", "no modulation")
    spaces = {"quantile space": 0.7 + gain, "value space": 0.7}
    aucs = {f"{kind}, {space}": auc for kind in kinds for space, auc in spaces.items()}
    assert judged("space", {**aucs, "distances to quantiles": 0.9})[0] == word
    betas = {f"{kind}, β = {beta}": 0.9 if beta == 1 else 0.7 + gain for kind in kinds[:2] for beta in (0.5, 1)}
    assert judged("beta", {"no modulation (β = 0)": 0.7, **betas})[0] == word
    choices = {"significant": 0.7 + gain, "insignificant": 0.7, "smallest": 0.9}
    contexts = {f"{kind}, {choice}": auc for kind in kinds[:2] for choice, auc in choices.items()}
    assert judged("context", {"no modulation": 0.9, **contexts})[0] == word


def test_half_of_the_cases_are_not_most():
    aucs = {"gate, significant": 0.8, "gate, insignificant": 0.7, "tran, significant": 0.6, "tran, insignificant": 0.7}
    word, sentence = judged("context", aucs)
    assert word == "does not hold"
    assert "ahead in 1 of 2 cases" in sentence


def test_without_a_pair_nothing_is_judged():
    assert judged("context", {"no modulation": 0.7})[0] == "–"
    assert judged("meta-count", {"DAES gate, M = 10": 0.7, "DAES gate, M = 50": 0.8}, ["daes-gate"])[0] == "–"


@pytest.mark.parametrize(
    ("daes", "autodis", "word", "said"),
    [
        ((0.75, 0.76), (0.71, 0.7), "holds", "of DAES rises, that of AutoDis falls."),
        ((0.76, 0.75), (0.7, 0.71), "partly", "of DAES falls, that of AutoDis rises."),
        ((0.6, 0.59), (0.7, 0.71), "does not hold", "of DAES falls, that of AutoDis rises."),
    ],
)
def test_more_meta_embeddings_should_help_daes_alone(daes, autodis, word, said):
    aucs = {}
    for title, ends in (("AutoDis", autodis), ("DAES gate", daes), ("DAES tran", daes)):
        aucs |= {f"{title}, M = 10": ends[0], f"{title}, M = 30": 0.99, f"{title}, M = 50": ends[1]}
    found = judged("meta-count", aucs, ["autodis", "daes-gate", "daes-tran"])
    assert found[0] == word
    assert found[1].endswith(said)


def test_most_added_features_should_help():
    aucs = {"categorical fields only": 0.6}
    for number, auc in enumerate((0.65, 0.64, 0.7), start=1):
        aucs |= {f"DAES gate, {number} numerical": auc, f"AutoDis, {number} numerical": 0.62}
    word, sentence = judged("feature-count", aucs, ["daes-gate", "autodis"])
    assert word == "holds"
    assert sentence.endswith("2 of 3 added features raise the AUC of DAES.")
    falling = {label: 1.3 - auc if label.startswith("DAES") else auc for label, auc in aucs.items()}
    assert judged("feature-count", {**falling, "categorical fields only": 0.7}, ["daes-gate", "autodis"])[0] == "partly"


def revenue(low, seeds):
    lift = {"mean": 0.02, "low": low, "high": 0.04}
    titles = (
        "A/A: EFD against itself",
        "DAES gate against EFD",
        "DAES gate against LD",
        "daes (our preset) against EFD",
    )
    found = {"experiments": {title: {"pooled": {"paired_lift": lift}, "seeds": [{}] * seeds} for title in titles}}
    return _rule(EXPERIMENTS["ab-test"])(make_result("ab-test", found, Settings(seeds=seeds)))


def test_revenue_is_judged_by_three_seeds_or_more():
    assert revenue(0.01, 3) == (
        [True, True],
        "Simulated: expected revenue with DAES gate is +2.0 % against EFD and +2.0 % against LD.",
    )
    assert revenue(-0.01, 3)[0] == [False, False]
    assert revenue(0.01, 2)[0] == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("jump-bias", []),
        ("reservoir-size", ["The variance falls as 1/m", "standard errors in 0 of"]),
        ("order-statistics-bias", ["The formula holds"]),
        ("value-space-limit", ["The example holds"]),
    ],
)
def test_simulations_are_judged_as_their_sections_say(name, said, tmp_path):
    settings = Settings(rows=20_000, seeds=1)
    result, _ = run_experiment(EXPERIMENTS[name], settings, None, tmp_path, Means(tmp_path))
    parts, sentence = _rule(EXPERIMENTS[name])(result)
    verdict = EXPERIMENTS[name].verdict(result)
    assert list(parts) == [words in verdict for words in said]
    assert "nan" not in sentence


def test_a_formula_that_fails_does_not_hold(tmp_path):
    name = "order-statistics-bias"
    result, _ = run_experiment(EXPERIMENTS[name], Settings(rows=20_000, seeds=1), None, tmp_path, Means(tmp_path))
    result.results["streams"][1]["order-statistics"][3] += 0.1
    parts, sentence = _rule(EXPERIMENTS[name])(result)
    assert _word(parts) == "does not hold"
    assert "beyond chance in 1 of 95 cases" in sentence


def test_the_overview_has_a_row_a_result_and_names_each_experiment_once():
    aucs = {"gate, significant": 0.8, "gate, insignificant": 0.7}
    one, other = (
        make_result("context", scores(aucs), Settings(seeds=3, protocol=protocol), "adstream:400")
        for protocol in ("stream", "paper")
    )
    for result in (one, other):
        result.results.update(contexts={}, ranking=[], rows_ranked=0, failures=[])
        result.results["training"].update(scope="s", batch_size=1, learning_rate=None, l2=None)
        result.results["scores"]["no modulation"] = result.results["scores"]["gate, insignificant"]
        result.results["scores"]["tran, significant"] = result.results["scores"]["gate, significant"]
    text = page([one, other], "results")
    assert "Of 2 results it holds in 2, partly in 0, and not in 0." in text
    rows = [line for line in text.splitlines() if line.startswith("| holds |")]
    assert [row.split(" | ")[1:3] for row in rows] == [
        ["[`context`](#fields-for-modulation)", "Simulated ad stream, 400 rows"],
        ["", "Simulated ad stream, 400 rows, the paper's protocol"],
    ]
    assert text.count("The claim: **holds**.") == 2
    assert "**Judged by.** (1) Significant fields give" in text


def test_every_rule_is_stated():
    rules = {name: _rule(experiment) for name, experiment in EXPERIMENTS.items()}
    assert [name for name, rule in rules.items() if rule is None] == ["cost"]
    assert all(rule.__doc__ for rule in rules.values() if rule is not None)
