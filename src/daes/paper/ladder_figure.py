"""The figure of the ladder: what each rung adds, and how far the default is ahead of rivals."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from daes.formatting import counted
from daes.paper import figures
from daes.paper.ladder_text import RIVAL, Cells, cells, differences, in_group, rungs
from daes.paper.result import ExperimentResult

_SCALE = " (linear up to 0.5, logarithmic beyond)"


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
    figure, (upper, lower) = figures.panels(2, 1, 9.6, 2.4 + 0.24 * sum(sizes), height_ratios=sizes)
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
