"""A comparison of estimators in the terminal: costs, rank errors by level, and quantiles."""

from bisect import bisect_left
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from daes.distribution.estimator_report import LABELS, EstimatorReport, EstimatorResult
from daes.formatting import compact, count, duration, measured, nbytes, percent, scientific
from daes.table import Cell, Table

FINE, POOR = 0.004, 0.02
"""Rank errors up to FINE are expected of a reservoir of 100,000 values; above POOR an estimate misleads."""
THEME = dict(zip(LABELS, ("c6", "c3", "c5", "c2", "c4", "c1", "c8"), strict=True))
"""The colour of each estimator on a page."""

_LIMITS = (0.0005, 0.001, 0.002, 0.004, 0.01, 0.02, 0.05)
_BARS, _PLAIN_BARS = "▁▂▃▄▅▆▇█", "12345678"
_SHOWN_LEVELS = (0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99)
_LABEL_WIDTH = 12


def headline(comparison: EstimatorReport, description: str) -> RenderableType:
    """What was read: number of values, range, and the settings."""
    rows = comparison.count + comparison.skipped
    lines = [
        f"{rows:,} values in {comparison.batches:,} batches, {comparison.skipped:,} of them missing or infinite "
        f"({100 * comparison.skipped / rows:.2g} %) and skipped; "
        f"from {measured(comparison.minimum)} to {measured(comparison.maximum)}.",
        f"Reservoirs of {comparison.size:,} slots, seed {comparison.seed}.",
    ]
    if not comparison.truth_is_exact:
        lines.append(f"The truth is a uniform sample of {comparison.kept:,} values: the stream is too long to keep.")
    return Group(Text(description, style="bold"), Text(" ".join(lines)), "")


def render(comparison: EstimatorReport, width: int, *, plain: bool = False) -> RenderableType:
    """All three views, for a terminal of this width; `plain` for one without block characters."""
    return Group(
        _title("Error and cost"),
        costs(comparison, wide=width >= 100),
        Text(_legend(comparison), style="dim"),
        "",
        strips(comparison, width - _LABEL_WIDTH, _PLAIN_BARS if plain else _BARS),
        "",
        quantiles(comparison, width),
    )


def costs(comparison: EstimatorReport, *, wide: bool = True) -> Table:
    """One line per estimator: error and cost; two more columns if `wide`."""
    errors = ("max rank error", "mean") if wide else ("max error",)
    head = ("method", *errors, "KL", "draws", "time", "values/s", *(["read"] if wide else []), "memory")
    return Table(head, [_costs(result, wide) for result in comparison.results])


def _costs(result: EstimatorResult, wide: bool) -> list[object]:
    return [
        Cell(result.label, colour=THEME[result.name], style="bold"),
        Cell(percent(result.max_rank_error, 3), style=_colour(result.max_rank_error)),
        *([percent(result.mean_rank_error, 3)] if wide else []),
        scientific(result.kl_divergence, 1),
        count(result.draws),
        duration(result.seconds),
        compact(result.values_per_second),
        *([duration(result.read_seconds)] if wide else []),
        nbytes(result.nbytes),
    ]


def strips(comparison: EstimatorReport, width: int, bars: str = _BARS) -> RenderableType:
    """The rank error at every level as a bar; in a narrow terminal, neighbours share the bar of the worse one."""
    levels = len(comparison.levels)
    share = -(-levels // max(width, 1))
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True, min_width=_LABEL_WIDTH - 2)
    grid.add_column(no_wrap=True)
    for result in comparison.results:
        strip = Text()
        for start in range(0, levels, share):
            error = max(map(abs, result.rank_errors[start : start + share]))
            strip.append(bars[bisect_left(_LIMITS, error)], style=_colour(error))
        grid.add_row(result.label, strip)
    first, last = (_percent_level(comparison.levels[end]) for end in (0, -1))
    ticks = first + last.rjust(max(-(-levels // share) - len(first), len(last) + 1))
    grid.add_row("level", Text(ticks, style="dim"))
    scale = ", ".join(f"{bar} {100 * limit:g}" for bar, limit in zip(bars, _LIMITS, strict=False))
    return Group(_title("Rank error by level"), grid, Text(f"up to {scale} %, {bars[-1]} more", style="dim"))


def quantiles(comparison: EstimatorReport, width: int) -> RenderableType:
    """Estimated and true quantiles at a few of the levels, in several tables if one is too wide."""
    rows = shown_levels(comparison.levels)
    parts: list[list[EstimatorResult]] = [[]]
    measure = Console(width=1000).measure
    for result in comparison.results:
        if parts[-1] and measure(_quantile_table(comparison, [*parts[-1], result], rows)).maximum > width:
            parts.append([])
        parts[-1].append(result)
    note = f"* off by more than {100 * FINE:g} % of the stream's ranks, ! by more than {100 * POOR:g} %"
    tables = [_quantile_table(comparison, part, rows) for part in parts]
    return Group(_title("Quantiles"), *tables, Text(note, style="dim"))


def _quantile_table(comparison: EstimatorReport, results: Sequence[EstimatorResult], rows: Sequence[int]) -> Table:
    lines = [
        [
            _percent_level(comparison.levels[row]),
            Cell(measured(comparison.true_quantiles[row]) + " ", style="bold"),
            *(Cell(_cell(result, row), style=_colour(abs(result.rank_errors[row]))) for result in results),
        ]
        for row in rows
    ]
    head = ("level", "true", *(result.label.replace(" ", "\n") for result in results))
    return Table(head, lines, left=frozenset())


def _cell(result: EstimatorResult, row: int) -> str:
    error = abs(result.rank_errors[row])
    return measured(result.quantiles[row]) + (" " if error <= FINE else "*" if error <= POOR else "!")


def shown_levels(levels: Sequence[float]) -> list[int]:
    """The indices of at most nine levels to show."""
    if len(levels) <= len(_SHOWN_LEVELS):
        return list(range(len(levels)))
    return sorted({min(range(len(levels)), key=lambda i: abs(levels[i] - wanted)) for wanted in _SHOWN_LEVELS})


def _legend(comparison: EstimatorReport) -> str:
    return (
        f"Error: how far a quantile is off, in percent of the stream's ranks; the largest of {len(comparison.levels)} "
        "levels. "
        "KL: divergence over 100 bins of equal mass. Draws: random numbers used. Memory: of the state; the truth, "
        "kept for this comparison alone, is not counted."
    )


def _title(text: str) -> Text:
    return Text(text, style="bold underline")


def _colour(error: float) -> str:
    return "green" if error <= FINE else "yellow" if error <= POOR else "red"


def _percent_level(level: float) -> str:
    return f"{100 * level:.6g} %"
