"""docs/reproduction.md: every experiment with the paper's claim, our numbers, the command, and what differs."""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from inspect import getdoc
from pathlib import Path
from statistics import fmean
from urllib.parse import quote

import numpy as np

from daes.durable import write_text
from daes.paper import EXPERIMENTS
from daes.paper.data import Floats
from daes.paper.experiment import Experiment
from daes.paper.order_statistics_bias import simulation_error
from daes.paper.published import ARPU_GAIN, BETA, DATASET_TITLES, DATASETS, METHOD_TITLES, QPS_CHANGE
from daes.paper.reservoir_size import exponents
from daes.paper.result import Result
from daes.paper.scores import compare_pairs, means_and_spreads
from daes.paper.tables import count, percent, table
from daes.paper.trials import known

Glance = tuple[Sequence[bool], str]
"""Which parts of the claim hold, none where nothing is judged, and a sentence or two."""
_STANDARD_ERRORS = 4
_ENOUGH_SEEDS = 3

_INTRODUCTION = """
# Reproduction of the paper

Every table and figure with numbers of *Distribution-Aware End-to-End Embedding for Streaming Numerical Features in
Click-Through Rate Prediction* as a command, and what came out here. The paper's Figures 1 and 2, which are diagrams,
and its Table 1, which lists properties of DAE and DAES, have no command; its table of data sets is below. This page is
generated: the numbers are those of the JSON files beside the figures, and the judgements are computed from them.

    daes paper list                 # the experiments
    daes paper NAME --data …        # run one: JSON, Markdown and a figure
    daes paper all --resume …       # run all of them, in as many sittings as it takes
    daes paper report               # make this page

Three kinds of data appear. *Criteo* is a sample of 137,139 genuine rows, 0.3 % of the paper's file, in their original
order: ids are starved at that size, so absolute AUCs lie below the paper's. *Flights* are 327,346 genuine flights of
2013 from New York, a public stream with strong drift that the paper does not have. The *simulated ad stream* stands
where the paper has industrial data that are not public; whatever is simulated is called so. *AutoML* runs where its
files are given.
"""


def write_page(results: Path, out: Path) -> int:
    """Write the page from all results in a folder; how many there were.

    Args:
        results: the folder with `*.json` and their figures.
        out: the page; figures are linked relative to it.
    """
    found = read_results(results)
    if not found:
        raise ValueError(f"{results} must hold results of `daes paper`, however: there is no such file")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, page(found, _link(out.parent, results)))
    return len(found)


def read_results(folder: Path) -> list[Result]:
    """All results in a folder, in the order of the experiments, then of the file names."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    order = list(EXPERIMENTS)
    found = [Result.load(path) for path in sorted(folder.glob("*.json"))]
    known = [result for result in found if result.experiment in EXPERIMENTS]
    return sorted(known, key=lambda result: (order.index(result.experiment), result.stem))


def page(results: Sequence[Result], folder: str) -> str:
    """The page as Markdown; `folder` is where it finds the figures."""
    by_name = {name: [result for result in results if result.experiment == name] for name in EXPERIMENTS}
    sections = [_section(EXPERIMENTS[name], several, folder) for name, several in by_name.items() if several]
    missing = [f"`{name}`" for name, several in by_name.items() if not several]
    parts = [_INTRODUCTION.strip(), _datasets(results), _overview(by_name), *sections]
    if missing:
        parts.append(f"## Not run yet\n\nThere are no results of {', '.join(missing)} in the folder.")
    return "\n\n".join(parts) + "\n"


def _datasets(results: Sequence[Result]) -> str:
    used = [result.data for result in results if result.data is not None]
    ours = {data["title"]: data for data in sorted(used, key=lambda data: data["rows"] or 0)}
    rows = [
        [
            title,
            data["categorical"],
            data["numerical"],
            count(data["rows"]),
            "simulated" if data["simulated"] else "genuine",
        ]
        for title, data in ours.items()
    ]
    rows += [
        [f"the paper's {DATASET_TITLES[name]}", one["categorical"], one["numerical"], count(one["rows"]), ""]
        for name, one in DATASETS.items()
    ]
    return "## Data\n\n" + table(["data set", "categorical", "numerical", "rows", "kind"], rows)


def _overview(by_name: Mapping[str, Sequence[Result]]) -> str:
    rows, words = [], Counter[str]()
    for name, several in by_name.items():
        rule, link = _rule(EXPERIMENTS[name]), f"[`{name}`](#{_anchor(EXPERIMENTS[name].title)})"
        for result in several:
            parts, sentence = rule(result) if rule else ((), EXPERIMENTS[name].verdict(result))
            words[_word(parts)] += 1
            rows.append(
                [
                    _word(parts),
                    "" if result is not several[0] else link,
                    result.where + _protocol(result).replace(", streaming protocol", ""),
                    sentence,
                ]
            )
    judged = sum(words.values()) - words[_word(())]
    holds, partly, fails = (words[_word(parts)] for parts in ([True], [True, False], [False]))
    return "\n\n".join(
        [
            "## At a glance",
            f"Does the paper's claim hold? Of {judged} results it holds in {holds}, partly in {partly}, and not in "
            f"{fails}. Each section below states the parts by which its claim is judged: it *holds* where all of them "
            "do, *partly* where some do, and *does not hold* where none does; – stands where nothing is judged. *Most* "
            "is more than half, also where the paper says all; *significant* is p < 0.05 by a t-test between seeds.",
            f"What the paper reports from production, ARPU {percent(ARPU_GAIN, 3, sign=True)} and QPS "
            f"{percent(QPS_CHANGE, 1)}, can only be imitated here: see `ab-test` and `cost`.",
            table(["claim", "experiment", "on", "what came out"], rows, words=4),
        ]
    )


def _word(parts: Sequence[bool]) -> str:
    """
    >>> [_word(parts) for parts in ([True, True], [True, False], [False], [])]
    ['holds', 'partly', 'does not hold', '–']
    """
    if not parts:
        return "–"
    return "holds" if all(parts) else "partly" if any(parts) else "does not hold"


def _rule(experiment: Experiment) -> Callable[[Result], Glance] | None:
    return experiment.glance or _GLANCES.get(experiment.name)


def _section(experiment: Experiment, results: Sequence[Result], folder: str) -> str:
    parts = [
        f"## {experiment.title}",
        f"**The paper.** {experiment.claim}",
        f"**What differs, and why.** {experiment.differs}",
    ]
    rule = _rule(experiment)
    if rule and (stated := getdoc(rule)):
        parts.append(f"**Judged by.** {stated}")
    for result in results:
        alt = f"{experiment.title}: {result.where}"
        parts += [
            f"### {result.where}{_protocol(result)}",
            *([f"The claim: **{_word(rule(result)[0])}**."] if rule and rule(result)[0] else []),
            experiment.verdict(result),
            f"![{alt}]({folder}/{quote(result.stem)}.png)",
            experiment.markdown(result),
            f"`{result.command}` · {_minutes(result.seconds)} · "
            + ", ".join(f"{name} {number}" for name, number in result.versions.items())
            + f" · [JSON]({folder}/{quote(result.stem)}.json)",
        ]
    return "\n\n".join(parts)


def _jump_bias(result: Result) -> Glance:
    """Nothing: the experiment is ours."""
    last = result.results["streams"][-1]
    paper, exact = (f"{last[rule]['first']:.2f} times" for rule in ("paper", "exact"))
    return (), (
        f"At T = {last['times']}m the published rule keeps one of the first m values {paper} as often as a uniform "
        f"sample would, the exact rule {exact}."
    )


def _reservoir_size(result: Result) -> Glance:
    """(1) The variance of quantiles falls as 1/m: at every level the exponent is within four standard errors of −1. (2)
    It is within four standard errors of the formula in every case.
    """
    sizes = result.results["sizes"]
    powers, errors = exponents(result.results)
    seen, theory, noise = (np.array([one[f"variance{name}"] for one in sizes]) for name in ("", "_theory", "_error"))
    off = np.abs(seen - theory) > _STANDARD_ERRORS * noise
    return (bool((np.abs(powers + 1) <= _STANDARD_ERRORS * errors).all()), not off.any()), (
        f"The variance falls as m to the power of {powers.min():.2f} to {powers.max():.2f}; it is off the formula in "
        f"{off.sum()} of {off.size} cases. Under drift the rank error against the last moment is "
        f"{percent(sizes[-1]['drifting_rank_error_now'], 0)} even at m = {count(sizes[-1]['slots'])}."
    )


def _order_statistics_bias(result: Result) -> Glance:
    """The simulation is within four standard errors of the formula at every level, for every number of batches."""
    found, levels = result.results, np.array(result.results["levels"])
    gaps = np.abs([np.subtract(one["order-statistics"], one["closed_form"]) for one in found["streams"]])
    noise = [simulation_error(one["batches"], found["values"], found["seeds"], levels) for one in found["streams"]]
    off, reservoir = int((gaps > noise).sum()), max(np.abs(one["reservoir"]).max() for one in found["streams"])
    return (not off,), (
        f"Simulation and formula differ by {gaps.max():.4f} at most, beyond chance in {off} of {gaps.size} cases. A "
        f"reservoir errs by {reservoir:.4f} at most on the same streams."
    )


def _value_space_limit(result: Result) -> Glance:
    """The two quantiles nearest to the example's value are not the ends of its bucket."""
    found = result.results
    law = max(found["mistaken"], key=lambda name: float(found["mistaken"][name]))
    worst, uniform = (percent(found["mistaken"][name], 1) for name in (law, "uniform"))
    return (found["nearest"] != [found["bucket"], found["bucket"] + 1],), (
        f"It happens to {worst} of the values of a {law} law, and to {uniform} of a uniform one, with "
        f"{found['buckets']} buckets."
    )


def _space(result: Result) -> Glance:
    """(1) Quantile space has a higher AUC than value space in most cases. (2) Significantly so in most."""
    return _judged(result, "Quantile space against value space", _alike(result, "quantile space", "value space"))


def _beta(result: Result) -> Glance:
    """(1) β = 0.5 has a higher AUC than no modulation in most cases. (2) Significantly so in most."""
    labels = [label for label in result.results["scores"] if label.endswith(f"β = {BETA:g}")]
    return _judged(result, f"β = {BETA:g} against none", [(label, "no modulation (β = 0)") for label in labels])


def _context(result: Result) -> Glance:
    """(1) Significant fields give a higher AUC than insignificant ones in most cases. (2) Significantly so in most."""
    pairs = _alike(result, ", significant", ", insignificant")
    return _judged(result, "Significant against insignificant fields", pairs)


def _meta_count(result: Result) -> Glance:
    """(1) DAES has a higher AUC than AutoDis in most cases. (2) Significantly so in most. (3) From the smallest M to
    the largest the AUC of DAES rises in most cases. (4) That of AutoDis falls in most.
    """
    parts, sentence = _judged(result, "DAES against AutoDis", _rivals(result))
    if not parts:
        return (), sentence
    *ours, autodis = (np.sign(np.nan_to_num(curve[:, -1] - curve[:, 0])).mean() for curve in _curves(result))
    daes = np.mean(ours)
    return (*parts, daes > 0, autodis < 0), (
        f"{sentence} From the smallest M to the largest the AUC of DAES {_goes(daes)}, that of AutoDis "
        f"{_goes(autodis)}."
    )


def _goes(sign: float) -> str:
    return "rises" if sign > 0 else "falls" if sign < 0 else "does neither rise nor fall"


def _feature_count(result: Result) -> Glance:
    """(1) DAES has a higher AUC than AutoDis in most cases. (2) Significantly so in most. (3) Most features that are
    added raise its AUC.
    """
    parts, sentence = _judged(result, "DAES against AutoDis", _rivals(result))
    if not parts:
        return (), sentence
    raised = np.concatenate([np.diff(curve).ravel() for curve in _curves(result)[:-1]]) > 0
    return (*parts, raised.mean() > 0.5), (
        f"{sentence} {raised.sum()} of {raised.size} added features raise the AUC of DAES."
    )


def _ab_test(result: Result) -> Glance:
    """With DAES gate the expected revenue, paired, is higher than with (1) EFD, (2) LD: the 95 % interval between three
    seeds or more lies above 0.
    """
    lifts = {
        title.removeprefix("DAES gate against "): one["pooled"]["paired_lift"]
        for title, one in result.results["experiments"].items()
        if title.startswith("DAES gate against ")
    }
    shown = " and ".join(f"{percent(lift['mean'], 1, sign=True)} against {name}" for name, lift in lifts.items())
    judged = [lift["low"] > 0 for lift in lifts.values()] if result.settings["seeds"] >= _ENOUGH_SEEDS else []
    return judged, f"Simulated: expected revenue with DAES gate is {shown}."


def _judged(result: Result, what: str, pairs: Sequence[tuple[str, str]]) -> Glance:
    """Whether the first of the pairs has the higher AUC in most cases, and significantly so in most."""
    from daes.training.significance import t_test

    scores, backbones = result.results["scores"], result.results["training"]["backbones"]
    every = [[known(scores[label][b]["auc"]) for label in pair] for pair in pairs for b in backbones]
    cases = [(one, other) for one, other in every if one and other]
    ahead = [(one, other) for one, other in cases if fmean(one) > fmean(other)]
    sure = [(one, other) for one, other in ahead if min(len(one), len(other)) > 1 and t_test(one, other).significant()]
    parts = [2 * len(some) > len(cases) for some in (ahead, sure)] if cases else []
    return parts, f"{what}: {compare_pairs(result, pairs)}"


def _alike(result: Result, one: str, other: str) -> list[tuple[str, str]]:
    """Pairs of labels that differ by these words alone."""
    scores = result.results["scores"]
    pairs = [(label, label.replace(one, other)) for label in scores if one in label]
    return [pair for pair in pairs if pair[1] in scores]


def _rivals(result: Result) -> list[tuple[str, str]]:
    methods = [METHOD_TITLES[method] for method in result.results["methods"] if method != "autodis"]
    return [pair for method in methods for pair in _alike(result, f"{method}, ", f"{METHOD_TITLES['autodis']}, ")]


def _curves(result: Result) -> list[Floats]:
    """The AUC on each backbone under each label in turn, a curve a method, AutoDis last."""
    scores, backbones = result.results["scores"], result.results["training"]["backbones"]
    curves = []
    for method in sorted(result.results["methods"], key=lambda name: name == "autodis"):
        labels = [label for label in scores if label.startswith((f"{METHOD_TITLES[method]}, ", "categorical"))]
        curves.append(np.array([means_and_spreads(scores, labels, backbone, "auc")[0] for backbone in backbones]))
    return curves


_GLANCES: dict[str, Callable[[Result], Glance]] = {
    "jump-bias": _jump_bias,
    "reservoir-size": _reservoir_size,
    "order-statistics-bias": _order_statistics_bias,
    "value-space-limit": _value_space_limit,
    "space": _space,
    "beta": _beta,
    "meta-count": _meta_count,
    "feature-count": _feature_count,
    "context": _context,
    "ab-test": _ab_test,
}
"""Of the experiments that bring none of their own; each docstring is a part of the page. `cost` judges nothing."""


def _protocol(result: Result) -> str:
    """As the end of a heading."""
    names = {"stream": ", streaming protocol", "paper": ", the paper's protocol", None: ""}
    return names[result.settings.get("protocol")] + (", tuned" if result.settings.get("tune") else "")


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _anchor(title: str) -> str:
    """The anchor that Markdown gives a heading.

    >>> _anchor("Distribution estimation: OS, RS, JRS")
    'distribution-estimation-os-rs-jrs'
    """
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c == "-")


def _link(start: Path, folder: Path) -> str:
    return Path(os.path.relpath(folder.resolve(), start.resolve())).as_posix()
