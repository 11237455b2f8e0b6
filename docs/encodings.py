"""Draw the encodings of docs/methods: `python docs/encodings.py` writes docs/images/encoding-*.png.

The feature is lognormal (median 10) with 30 % zeros. A picture shows a method's output over the value, and over the
rank: the same values, each with a width in proportion to its rows. Tables of learned rows are replaced by the identity,
so that the output is the weight of each row; methods without such a table are shown as they start.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from daes.embedding import METHODS, NumericalEmbedding, build_embedding
from daes.extras import require

Floats = NDArray[np.float64]

NUM_ROWS = 20_000
ZEROS = 0.3
NUM_POINTS = 400
LAST_RANK = 0.99
"""The value axis ends here: beyond it a lognormal is long and empty."""

RANK_TICKS = (0.0, 0.3, 0.5, 0.7, 0.9, 1.0)
OPTIONS: dict[str, dict[str, Any]] = {"ld": {"max_ids": 40}}
WEIGHTS, SIGNED = "cividis", "PuOr"  # both readable for the colour-blind, as are the lines
LINES = ("#0072b2", "#d55e00", "#009e73")


@dataclass(frozen=True)
class Panel:
    """Outputs (rows, points) over the value and over the rank: heat maps, or lines where they have names."""

    label: str
    over_value: Floats
    over_rank: Floats
    signed: bool = False
    lines: tuple[str, ...] = ()


def feature(num_rows: int = NUM_ROWS, seed: int = 0) -> Tensor:
    """The skewed feature, (N, 1)."""
    rng = np.random.default_rng(seed)
    values = 10 * rng.lognormal(sigma=1.0, size=num_rows)
    values[: int(ZEROS * num_rows)] = 0.0
    return torch.from_numpy(rng.permutation(values)).float().unsqueeze(1)


def clicks(values: Tensor, seed: int = 0) -> Tensor:
    """Labels for the method that needs them: clicks are frequent around rank 0.6, rare elsewhere."""
    rank = values.flatten().argsort().argsort() / len(values)
    probability = 0.05 + 0.4 * torch.exp(-(((rank - 0.6) / 0.12) ** 2))
    return (torch.rand(len(values), generator=torch.Generator().manual_seed(seed)) < probability).float()


def panels(name: str) -> list[Panel]:
    """What is to be seen of a method."""
    values = feature()
    method = learned(name, values)
    if method.uses_context:
        return _context_panels(method, values)
    if getattr(method, "linear", None) is not None:
        return _path_panels(method, values)
    if not method.num_outputs:
        lines = getattr(method, "input_names", tuple(f"input {place}" for place in range(method.plain_dim)))
        return [replace(_panel("input", lambda x: _outputs(method, x), values), lines=lines)]
    return [_output_panel(method, values)]


def learned(name: str, values: Tensor) -> NumericalEmbedding:
    """A method that knows the feature, its table the identity where it has one."""
    options = OPTIONS.get(name, {})
    table = _table_of(build_embedding(name, 1, 1, **options))
    torch.manual_seed(0)
    method = build_embedding(name, 1, 16 if table is None else table.shape[1], **options)
    # LD is made for counts: of a feature that is none, every value up to 2 would get an id of its own.
    method.fit(values.floor() if name == "ld" else values, clicks(values))
    own = _table_of(method)
    if own is not None:
        with torch.no_grad():
            own.copy_(torch.eye(own.shape[1]).unsqueeze(0))
    return method.eval()


def draw(name: str, path: Path) -> None:
    """Write a method's picture as PNG."""
    shown = panels(name)
    values = feature()
    heights = [0.9 if panel.lines and len(shown) > 1 else 1.55 for panel in shown]
    figure = require("matplotlib.figure").Figure(figsize=(8.4, 0.75 + sum(heights)), layout="constrained")
    grid = figure.subplots(len(shown), 2, squeeze=False, sharex="col", height_ratios=heights)
    for panel, (left, right) in zip(shown, grid, strict=True):
        (_draw_lines if panel.lines else _draw_heat)(figure, (left, right), panel, _end(values))
        left.set_ylabel(panel.label, fontsize=8)
        right.tick_params(labelleft=False)
        for axes in (left, right):
            axes.tick_params(labelsize=7)
    right.set_xticks(RANK_TICKS, [f"{rank:.0%}".replace("%", " %") for rank in RANK_TICKS])
    left.set_xlabel("value", fontsize=8)
    right.set_xlabel("rank: share of rows up to this value", fontsize=8)
    _label_values(grid[0][1], values)
    figure.suptitle(f"{name}: {METHODS[name].title}", fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _draw_heat(figure: Any, pair: tuple[Any, Any], panel: Panel, end: float) -> None:
    largest = float(np.abs(panel.over_rank).max())
    limit = 1.0 if 0.8 < largest <= 1.0 else largest
    low, colours = (-limit, SIGNED) if panel.signed else (0.0, WEIGHTS)
    rows = len(panel.over_rank)
    for axes, weights, right in zip(pair, (panel.over_value, panel.over_rank), (end, 1.0), strict=True):
        image = axes.imshow(
            weights,
            aspect="auto",
            origin="lower",
            interpolation="nearest",
            extent=(0.0, right, -0.5, rows - 0.5),
            cmap=colours,
            vmin=low,
            vmax=limit,
        )
        axes.set_yticks(sorted({0, rows // 2, rows - 1}))
    bar = figure.colorbar(image, ax=pair[1], pad=0.02, aspect=12)
    bar.ax.tick_params(labelsize=7)
    bar.set_label("coordinate" if panel.signed else "weight", size=7)


def _draw_lines(figure: Any, pair: tuple[Any, Any], panel: Panel, end: float) -> None:
    steps = (np.arange(NUM_POINTS) + 0.5) / NUM_POINTS
    for axes, outputs, right in zip(pair, (panel.over_value, panel.over_rank), (end, 1.0), strict=True):
        for line, name, colour in zip(outputs, panel.lines, LINES, strict=False):
            axes.plot(steps * right, line, color=colour, label=name, linewidth=1.5)
        axes.set_xlim(0.0, right)
        axes.grid(color="0.9", linewidth=0.6)
        axes.set_axisbelow(True)
    pair[1].sharey(pair[0])
    pair[0].legend(fontsize=7, frameon=False, handlelength=1.2)


def _label_values(axes: Any, values: Tensor) -> None:
    """The values at the marked ranks, above the panel."""
    top = axes.secondary_xaxis("top")
    ranks = [ZEROS / 2, *(rank for rank in RANK_TICKS if ZEROS < rank < 1), LAST_RANK]
    labels = [f"{value:.2g}" for value in _at_ranks(values, np.array(ranks)).tolist()]
    top.set_xticks(ranks, [f"value {labels[0]}", *labels[1:]])
    top.tick_params(labelsize=7, length=2)


def _panel(label: str, outputs: Callable[[Tensor], Tensor], values: Tensor, *, signed: bool = False) -> Panel:
    steps = (np.arange(NUM_POINTS) + 0.5) / NUM_POINTS
    over_value = torch.from_numpy(steps * _end(values)).float().unsqueeze(1)
    over_value[0] = 0.0
    over_rank = _at_ranks(values, steps).unsqueeze(1)
    found = [outputs(x).double().T.numpy() for x in (over_value, over_rank)]
    return Panel(label, found[0], found[1], signed)


def _context_panels(method: Any, values: Tensor) -> list[Panel]:
    """The weights without a context, and under two that were drawn at random with weights large enough to see."""
    if hasattr(method, "modulation_weight"):
        with torch.no_grad():
            method.modulation_weight.normal_(generator=torch.Generator().manual_seed(1))
    width = getattr(method, "context_dim", method.dim)
    contexts = torch.randn(2, width, generator=torch.Generator().manual_seed(2)) * 0.5
    found = [_output_panel(method, values, ", no context")]
    for letter, context in zip("AB", contexts, strict=True):
        found.append(_output_panel(method, values, f", context {letter}", context.expand(NUM_POINTS, -1)))
    return found


def _output_panel(method: NumericalEmbedding, values: Tensor, suffix: str = "", context: Tensor | None = None) -> Panel:
    """The weights of a table's rows, or the components of the vectors of a method without one."""
    rows = _table_of(method) is not None
    outputs = partial(_outputs, method, context=context)
    return _panel(f"{'row' if rows else 'component'}{suffix}", outputs, values, signed=not rows)


def _path_panels(method: Any, values: Tensor) -> list[Panel]:
    """The weights of the basis, and the linear path beside it."""
    with torch.no_grad():
        method.linear_weight.zero_()
        basis = _output_panel(method, values)
        method.meta_embeddings.zero_()
        method.linear_weight.fill_(1.0)
        path = _panel("path", lambda x: _outputs(method, x)[:, :1], values)
    return [basis, replace(path, lines=("z",))]


def _outputs(method: NumericalEmbedding, x: Tensor, context: Tensor | None = None) -> Tensor:
    with torch.no_grad():
        fields, plain = method.outputs(x, context)
        if method.num_outputs:
            return fields.flatten(1)
        assert plain is not None
        return plain


def _table_of(method: NumericalEmbedding) -> nn.Parameter | None:
    """The learned rows that a method weighs, (1, rows, d); None where it has no such table."""
    table = getattr(method, "meta_embeddings", getattr(method, "table", None))
    return table if isinstance(table, nn.Parameter) and table.dim() == 3 else None


def _at_ranks(values: Tensor, ranks: Floats) -> Tensor:
    return values.flatten().sort().values[torch.from_numpy(ranks * len(values)).long()]


def _end(values: Tensor) -> float:
    return float(_at_ranks(values, np.array([LAST_RANK])))


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the pictures of some or all methods."""
    parser = argparse.ArgumentParser(prog="docs/encodings.py", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "images", help="folder for encoding-NAME.png"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"methods, all by default: {', '.join(METHODS)}")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in METHODS]
    if unknown:
        parser.error(f"NAME must be one of {', '.join(METHODS)}, got {', '.join(unknown)}")
    for name in given.names or METHODS:
        path = given.out / f"encoding-{name}.png"
        draw(name, path)
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
