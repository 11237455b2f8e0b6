"""The result of the ladder: its tables, tests, verdict and figure."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

import numpy as np

from daes.experiments.row_tests import bootstrap_p
from daes.experiments.significance import LEVEL, Friedman, friedman, holm
from daes.formatting import count, counted, fixed, p_equals
from daes.paper import figures
from daes.paper.experiment import Findings
from daes.paper.result import ExperimentResult
from daes.paper.scores import backbone_title
from daes.table import Cell, markdown_table

RUNG, RIVAL = "rung", "rival"
"""Groups of labels: the rungs, and rivals without a backbone; other rivals are grouped by what they are given."""
SUMMARY = "half_auc"
"""The measure that is compared and tested: AUC over the second half."""
GROUPS = {
    "none": "Trained as the default is, with nothing of its inputs",
    "plain": "Given its plain inputs",
    "evidence": "Given its evidence",
    "both": "Given its plain inputs and its evidence",
    RIVAL: "Without a backbone",
}
_SCALE = " (linear up to 0.5, logarithmic beyond)"
_INTERVAL = ("difference", "low", "high")
_HOW = "paired DeLong test and bootstrap over 64 blocks of consecutive rows, the larger p"

Cells = Mapping[tuple[str, str], float]
"""(stream, backbone) → the mean over seeds."""
PairTests = dict[tuple[str, str], list[Findings]]
"""(subject, baseline) → their tests, one per cell."""


def cells(found: Findings, label: str, measure: str = SUMMARY) -> Cells:
    """The cells of a label that have a score."""
    return {
        (stream, backbone): fmean(values)
        for stream, by_backbone in found["scores"].get(label, {}).items()
        for backbone, by_measure in by_backbone.items()
        if (values := [value for value in by_measure[measure] if value is not None])
    }


def rungs(found: Findings) -> list[str]:
    """The rungs, from top to bottom."""
    return in_group(found, RUNG)


def in_group(found: Findings, group: str) -> list[str]:
    """The labels of a group that have scores."""
    return [label for label, about in found["labels"].items() if about["group"] == group and cells(found, label)]


def differences(one: Cells, other: Cells) -> list[float]:
    """One minus the other in the cells that both have."""
    return [one[cell] - other[cell] for cell in one if cell in other]


def change(one: Cells, other: Cells) -> str:
    """The median difference over the cells, and in how many of them the first is ahead."""
    found = differences(one, other)
    if not found:
        return ""
    return f"{fixed(median(found), sign=True)} ({sum(gap > 0 for gap in found)}/{len(found)})"


def corrected_tests(found: Findings) -> list[Findings]:
    """The tests with `p_value`: the larger of both p-values (DeLong, bootstrap), after Holm's correction over all."""
    raw = [max(test["delong"], bootstrap_p(*(test[name] for name in _INTERVAL))) for test in found["tests"]]
    return [{**test, "p_value": p} for test, p in zip(found["tests"], holm(raw).tolist(), strict=True)]


def count_significant(tests: Sequence[Findings]) -> tuple[int, int, int]:
    """In how many corrected tests the subject is significantly ahead, in how many significantly behind; of how many."""
    ahead = [test["difference"] > 0 for test in tests if test["p_value"] < LEVEL]
    return sum(ahead), len(ahead) - sum(ahead), len(tests)


def pair_tests(found: Findings) -> PairTests:
    """The corrected tests of each pair."""
    pairs: PairTests = {}
    for test in corrected_tests(found):
        pairs.setdefault((test["subject"], test["baseline"]), []).append(test)
    return pairs


def best_of(found: Findings, labels: Sequence[str]) -> dict[tuple[str, str], str]:
    """The best of the labels in each cell of the default."""
    scores = {label: cells(found, label) for label in labels}
    best = {}
    for cell in cells(found, found["default"]):
        known = {label: by_cell[cell] for label, by_cell in scores.items() if cell in by_cell}
        if known:
            best[cell] = max(known, key=lambda label: known[label])
    return best


def markdown(result: ExperimentResult) -> str:
    """Tables of rungs and of rivals, and the tests."""
    found = result.results
    tests = pair_tests(found)
    parts = [_intro(result), _table(found, rungs(found), tests, against_previous=True)]
    for group, title in GROUPS.items():
        labels = in_group(found, group)
        if labels:
            order = sorted(labels, key=lambda label: -fmean(cells(found, label).values()))
            parts += [
                f"{title} (the last columns: against the default):",
                _table(found, order, tests, against_previous=False),
            ]
    parts.append(_friedman(found))
    parts += [f"Failed: {line}" for line in found["failures"]]
    parts += [f"Note: {line}" for line in found["notes"]]
    return "\n\n".join(part for part in parts if part)


def _intro(result: ExperimentResult) -> str:
    found = result.results
    *names, last = (backbone_title(name) for name in found["training"]["backbones"])
    over = f"the mean of {', '.join(names)} and {last}" if names else last
    streams = ", ".join(f"{name} ({count(about['rows'])} rows)" for name, about in found["streams"].items())
    tested = " (predictions were not kept: nothing is tested)"
    if found["tests"]:
        tested = (
            f"; then in how many cells it is significantly higher / lower over the second half: {_HOW}, p < {LEVEL} "
            f"after Holm's correction for all {len(found['tests'])} comparisons of this page"
        )
    return (
        f"One pass over each stream, every batch scored before it is learned from; AUC over the second half, {over}, "
        f"{counted(result.settings['seeds'], 'seed')}. The last columns: the median change over the "
        "cells (a stream with a backbone) and in how many of them AUC rose, for the second half and for the whole "
        f"stream{tested}. Streams: {streams}."
    )


def _table(found: Findings, labels: Sequence[str], tests: PairTests, *, against_previous: bool) -> str:
    """The scores of labels by stream, and their change against the label before, or against the default."""
    streams = list(found["streams"])
    best = {stream: max((_mean(found, label, stream) or 0.0) for label in labels) for stream in streams}
    rows: list[list[object]] = []
    for previous, label in zip([None, *labels], labels, strict=False):
        base = previous if against_previous else found["default"]
        means = {stream: _mean(found, label, stream) for stream in streams}
        row: list[object] = [label, *(Cell(fixed(mean), strong=mean == best[name]) for name, mean in means.items())]
        if base is None:
            row += ["", "", ""]
        else:
            row += [change(cells(found, label, m), cells(found, base, m)) for m in (SUMMARY, "auc")]
            if against_previous:
                higher, lower, tested = count_significant(tests.get((label, base), []))
            else:  # the default is the subject of these tests
                lower, higher, tested = count_significant(tests.get((base, label), []))
            row.append(f"{higher} / {lower}" if tested else "")
        rows.append(row)
    headers = ["", *streams, "second half", "whole stream", "significantly ↑ / ↓"]
    if not found["tests"]:
        return markdown_table(headers[:-1], [row[:-1] for row in rows])
    return markdown_table(headers, rows)


def _mean(found: Findings, label: str, stream: str) -> float | None:
    values = [value for (name, _), value in cells(found, label).items() if name == stream]
    return fmean(values) if values else None


def friedman_of(found: Findings, labels: Sequence[str]) -> tuple[Friedman | None, list[str]]:
    """Friedman's test of labels over the streams that all have, on their means over backbones and seeds."""
    streams = [
        stream for stream in found["streams"] if all(_mean(found, label, stream) is not None for label in labels)
    ]
    table = [[_mean(found, label, stream) for stream in streams] for label in labels]
    return (friedman(np.array(table, dtype=float)) if streams else None), streams


def _friedman(found: Findings) -> str:
    labels = [found["default"], *in_group(found, "none"), *in_group(found, RIVAL)]
    test, streams = friedman_of(found, labels)
    if test is None:
        return ""
    order = sorted(zip(labels, test.ranks, strict=True), key=lambda pair: pair[1])
    ranks = ", ".join(f"{label} {fixed(rank, 2)}" for label, rank in order)
    return (
        f"Friedman's test with {counted(len(streams), 'stream')} as blocks, of the default and the rivals with nothing "
        f"of its inputs: χ² = {test.statistic:.1f}, {p_equals(test.p_value)}. Mean ranks: {ranks}. Two of them "
        f"differ at the 5 % level (Nemenyi) where they are {fixed(test.critical_difference, 2)} apart or more."
    )


def verdict(result: ExperimentResult) -> str:
    """The default against the best rival of each group, cell by cell."""
    found = result.results
    default, lines = cells(found, found["default"]), []
    tests = {
        (t["stream"], t["backbone"], t["baseline"]): t
        for t in corrected_tests(found)
        if t["subject"] == found["default"]
    }
    for group, title in GROUPS.items():
        best = best_of(found, [label for label in in_group(found, group) if found["labels"][label]["method"] != "daes"])
        if not best:
            continue
        gaps = [default[cell] - cells(found, label)[cell] for cell, label in best.items()]
        higher, lower, tested = count_significant(
            [tests[*cell, label] for cell, label in best.items() if (*cell, label) in tests]
        )
        significance = (
            f", significantly in {higher} and significantly behind in {lower} of {tested} ({_HOW}, after Holm's "
            "correction)"
        )
        lines.append(
            f"{title}: against the best rival of each cell the default has {fixed(median(gaps), sign=True)} (median) "
            f"and is ahead in {sum(gap > 0 for gap in gaps)} of {len(gaps)} cells{significance if tested else ''}."
        )
    return "\n".join(f"- {line}" for line in lines)


def draw(result: ExperimentResult) -> "figures.Figure":
    """The rungs, each against the one before it, above the rivals, each against the default."""
    found = result.results
    steps = rungs(found)
    default = cells(found, found["default"])
    climbed = [(one, cells(found, one), cells(found, other)) for one, other in zip(steps[1:], steps, strict=False)]
    # Only rivals with none or all of the default's inputs are shown.
    others = [*in_group(found, "none"), *in_group(found, "both"), *in_group(found, RIVAL)]
    behind = [(label, default, cells(found, label)) for label in others]
    behind.sort(key=lambda line: median(differences(line[1], line[2]) or [0.0]))
    sizes = [max(len(lines), 4) for lines in (climbed, behind)]
    figure, (upper, lower) = figures.panels(2, 1, 2.4 + 0.24 * sum(sizes), height_ratios=sizes)
    colours = dict(zip(found["streams"], figures.CYCLE * 2, strict=False))
    _draw(upper, climbed, colours)
    upper.set(title="What each change adds", xlabel=f"AUC × 100 above the rung before{_SCALE}")
    _draw(lower, behind, colours)
    lower.set(
        title="How far the default is above rivals that are trained as it is",
        xlabel=f"AUC × 100 of the default above the rival{_SCALE}",
    )
    handles = [upper.plot([], [], "o", color=colours[name], markersize=4, label=name)[0] for name in found["streams"]]
    upper.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.02))  # right of the rungs
    names = len(found["training"]["backbones"])
    figures.headline(
        figure,
        "From the published gate to the default",
        f"AUC over the second half of one pass · {counted(len(found['streams']), 'stream')}, "
        f"{counted(names, 'backbone')}, {counted(result.settings['seeds'], 'seed')} · dots: cells, bars: their median",
    )
    return figure


def _draw(panel: Any, lines: Sequence[tuple[str, Cells, Cells]], colours: dict[str, str]) -> None:
    for row, (_, one, other) in enumerate(lines):
        for cell in (cell for cell in one if cell in other):
            gap = 100 * (one[cell] - other[cell])
            panel.plot(gap, row, "o", color=colours[cell[0]], alpha=0.6, markersize=4)
        gaps = differences(one, other)
        if gaps:
            panel.plot(100 * median(gaps), row, "|", color=figures.BLACK, markersize=13, markeredgewidth=2.2)
    panel.axvline(0, color=figures.GREY, linewidth=0.8)
    figures.name_rows(panel, [label for label, *_ in lines], 0.6, 0.6)
    panel.set_xscale("symlog", linthresh=0.5, linscale=0.7)
    panel.set_xticks([-5, -1, 0, 1, 5], ["−5", "−1", "0", "1", "5"])
    panel.set_xticks([], minor=True)
