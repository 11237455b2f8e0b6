"""Draw the figures of docs/concepts.md: `python docs/figures.py` writes docs/images/concept-*.png.

What is drawn is computed by the library itself: the reservoirs, the quantiles and the log odds are those of a model.
"""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch

from daes.distribution import JumpReservoir
from daes.evidence.odds import log_odds

mpl.use("agg")
from matplotlib import pyplot as plt

IMAGES = Path(__file__).parent / "images"
BLUE, ORANGE, GREY = "#1769aa", "#d9730d", "#b8bec6"


def drifting_prices(rows: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Log-normal prices whose median rises from 20 to 55."""
    rng = np.random.default_rng(seed)
    return rng.lognormal(np.log(20) + np.linspace(0, 1, rows), 0.8)


def draw_reservoir(path: Path, rows: int = 4000, size: int = 60) -> None:
    """Which values of a stream are members, early and late."""
    values = drifting_prices(rows)
    reservoir = JumpReservoir(size=size, seed=3)
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.2), sharey=True, constrained_layout=True)
    start = 0
    for panel, end in zip(panels, (rows // 8, rows // 2, rows), strict=True):
        reservoir.update(values[start:end])
        start = end
        kept = np.flatnonzero(np.isin(values[:end], reservoir.sample))
        panel.scatter(np.arange(end), values[:end], s=2, color=GREY, linewidths=0)
        panel.scatter(kept, values[kept], s=18, color=BLUE, linewidths=0)
        panel.set(title=f"after {end:,} values: {len(kept)} kept", xlim=(0, rows), yscale="log", xlabel="row")
    panels[0].set_ylabel("price")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_quantiles(path: Path, rows: int = 20_000, bins: int = 10) -> None:
    """Ten bins of one width against ten bins of one share, on skewed values."""
    values = np.random.default_rng(0).lognormal(3, 1, rows)
    reservoir = JumpReservoir(size=2000, seed=0)
    reservoir.update(values)
    wide = np.linspace(values.min(), values.max(), bins + 1)
    quantiles = np.concatenate([[values.min()], reservoir.quantile(np.arange(1, bins) / bins), [values.max()]])
    figure, panels = plt.subplots(1, 2, figsize=(11, 3.2), constrained_layout=True)
    for panel, edges, title in zip(panels, (wide, quantiles), ("bins of equal width", "quantiles"), strict=True):
        shares = np.histogram(values, edges)[0] / rows
        panel.bar(np.arange(1, bins + 1), 100 * shares, color=BLUE if edges is quantiles else GREY)
        panel.set(title=title, xlabel="bin", ylabel="share of rows, %", xticks=np.arange(1, bins + 1), ylim=(0, 100))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_drift(path: Path, rows: int = 40_000, parts: int = 40) -> None:
    """The share of rows above a ninth decile that stays, and above one that follows."""
    values = drifting_prices(rows)
    cut = np.quantile(values[: rows // 10], 0.9)
    uniform, fading = JumpReservoir(size=2000, seed=0), JumpReservoir(size=2000, seed=0, half_life=rows / 10)
    fixed, whole, recent = [], [], []
    for batch in np.split(values, parts):
        fixed.append(np.mean(batch > cut))
        for shares, reservoir in ((whole, uniform), (recent, fading)):
            if reservoir.count:
                shares.append(np.mean(batch > reservoir.quantile(0.9)))
            reservoir.update(batch)
    figure, panel = plt.subplots(figsize=(8, 3.4), constrained_layout=True)
    along = np.arange(parts) * rows / parts
    panel.plot(along, 100 * np.array(fixed), color=ORANGE, label="bins fitted on the first tenth")
    panel.plot(along[1:], 100 * np.array(whole), color=GREY, label="uniform reservoir")
    panel.plot(along[1:], 100 * np.array(recent), color=BLUE, label="reservoir with half-life")
    panel.axhline(10, color="black", linewidth=0.8, linestyle=":")
    panel.set(xlabel="row", ylabel="share in the top bin, %", ylim=(0, None))
    panel.legend(frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_evidence(path: Path, prior: float = 0.2, strength: float = 20.0) -> None:
    """The log odds of an id against the number of its views."""
    views = torch.logspace(0, 4, 200)
    figure, panel = plt.subplots(figsize=(8, 3.4), constrained_layout=True)
    for rate, colour in ((0.4, BLUE), (0.1, ORANGE)):
        odds = log_odds(views, rate * views, torch.tensor(prior), strength)
        panel.plot(views, odds, color=colour, label=f"{rate:.0%} of its views are clicks")
        panel.axhline(
            float(torch.logit(torch.tensor(rate)) - torch.logit(torch.tensor(prior))), color=colour, ls=":", lw=1
        )
    panel.axhline(0, color="black", linewidth=0.8)
    panel.set(xscale="log", xlabel="views so far", ylabel="log odds above the click rate")
    panel.legend(frameon=False, loc="center right")
    figure.savefig(path, dpi=110)
    plt.close(figure)


FIGURES = {
    "concept-reservoir.png": draw_reservoir,
    "concept-quantiles.png": draw_quantiles,
    "concept-drift.png": draw_drift,
    "concept-evidence.png": draw_evidence,
}


def main(folder: Path = IMAGES) -> None:
    """Draw all of them."""
    for name, draw in FIGURES.items():
        draw(folder / name)


if __name__ == "__main__":
    main()
