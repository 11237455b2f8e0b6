"""The figure of the estimators: how far each estimate is from the true distribution."""

from typing import Any

import numpy as np

from daes.formatting import compact, count
from daes.paper import figures
from daes.paper.experiment import Findings
from daes.paper.published import ESTIMATION_CALLS, ESTIMATION_KL, ESTIMATION_LENGTHS, RESERVOIR_SIZE
from daes.paper.result import ExperimentResult

KINDS = ("clustered", "spread")
"""Kinds of features."""
SAMPLERS = {"reservoir": "RS", "jump-paper": "JRS, published rule", "jump": "JRS, exact rule"}
"""The samplers with their titles."""
_COLOURS = (figures.SKY, figures.PURPLE, figures.GREEN)
_LEAST = 1e-6  # a logarithmic axis has no 0


def draw(result: ExperimentResult) -> "figures.Figure":
    """One panel per kind of feature: OS, each sampler by number of slots, and the paper's figures."""
    found = [result.results[kind] for kind in KINDS]
    rows = max(len(one["reservoirs"]) for one in found) + 1
    figure, axes = figures.panels(1, 2, 1.55 + 0.29 * (2 + 4 * rows), sharex=True)
    left_ticks: dict[int, str] = {}
    for column, (kind, one, panel) in enumerate(zip(KINDS, found, axes, strict=True)):
        ticks = _draw_kind(panel, one, column)
        panel.set_xscale("log")
        panel.set_yticks(list(ticks), ticks.values() if ticks != left_ticks else [""] * len(ticks))
        left_ticks = ticks
        panel.set_ylim(max(ticks) + 0.6, -0.8)
        panel.tick_params(axis="y", length=0)
        panel.set(
            xlabel="KL divergence from the truth (less is better)",
            title=f"{one['feature']} ({kind}): {compact(one['values'])} values",
        )
        panel.grid(axis="y", visible=False)
    figures.legend(
        figure,
        {"marker": "o", "linestyle": "", "label": "masses of the true intervals"},
        {"marker": "s", "linestyle": "", "fillstyle": "none", "label": "shares in the estimated buckets"},
        {"linestyle": ":", "label": "masses of a uniform sample, by chance"},
        {"marker": "D", "linestyle": "", "fillstyle": "none", "label": "the paper"},
    )
    figures.headline(
        figure,
        "How far each estimate lies from the true distribution",
        f"{result.title} · one mark per seed · n draws: random numbers drawn, mean over the seeds",
    )
    return figure


def _draw_kind(panel: Any, found: Findings, column: int) -> dict[int, str]:
    """Draw OS, then each reservoir, then the paper's figures; return the label of each row."""
    ticks = {0: "OS"}
    _draw_errors(panel, found["order-statistics"], 0, figures.VERMILION)
    place = 1
    for part in found["reservoirs"]:
        _heading(panel, place, f"{count(part['slots'])} slots")
        top = place + 0.5
        for (name, title), colour in zip(SAMPLERS.items(), _COLOURS, strict=True):
            place += 1
            ticks[place] = title
            _draw_errors(panel, part[name], place, colour)
            _write_draws(panel, place, part[name]["draws"])
        chance = part["kl_by_chance"]
        panel.plot([chance, chance], [top, place + 0.5], color=figures.BLACK, linestyle=":", linewidth=1.2)
        place += 1
    length = compact(ESTIMATION_LENGTHS[column])
    _heading(panel, place, f"the paper: Criteo's I{'35'[column]}, {length} values, {count(RESERVOIR_SIZE)} slots")
    for name, published in ESTIMATION_KL.items():
        place += 1
        ticks[place] = name
        panel.plot(published[column], place, "D", color=figures.BLACK, fillstyle="none", markersize=5)
        if name in ESTIMATION_CALLS:
            _write_draws(panel, place, ESTIMATION_CALLS[name][column])
    return ticks


def _draw_errors(panel: Any, errors: Findings, place: int, colour: str) -> None:
    for reading, marker, lift in (("masses", "o", -0.13), ("buckets", "s", 0.13)):
        values = np.maximum(errors[reading], _LEAST)
        fill = colour if reading == "masses" else "none"
        panel.plot(values, [place + lift] * len(values), marker, color=colour, markerfacecolor=fill, alpha=0.75)


def _write_draws(panel: Any, place: int, draws: float) -> None:
    text = f"{compact(draws)} draws"
    panel.text(1.01, place, text, transform=panel.get_yaxis_transform(), va="center", fontsize=7.5)


def _heading(panel: Any, place: int, text: str) -> None:
    panel.axhspan(place - 0.36, place + 0.36, color="#e3e9ee", linewidth=0)
    panel.text(0.01, place, text, transform=panel.get_yaxis_transform(), va="center", fontsize=8, color="#444444")
