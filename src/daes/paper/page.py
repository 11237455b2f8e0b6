"""docs/reproduction.md: every experiment with the paper's claim, our numbers, the command, and what differs."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from daes.durable import write_text
from daes.paper import EXPERIMENTS
from daes.paper.experiment import Experiment
from daes.paper.published import ARPU_GAIN, DATASET_TITLES, DATASETS, QPS_CHANGE
from daes.paper.result import Result
from daes.paper.tables import count, percent, table

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
    return "## Data\n\n" + table(["data set", "categorical", "numerical", "rows", ""], rows)


def _overview(by_name: Mapping[str, Sequence[Result]]) -> str:
    rows = [
        [f"[`{name}`](#{_anchor(EXPERIMENTS[name].title)})", result.where, EXPERIMENTS[name].verdict(result)]
        for name, several in by_name.items()
        for result in several
    ]
    head = (
        "## At a glance\n\n"
        f"What the paper reports from production, ARPU {percent(ARPU_GAIN, 3, sign=True)} and QPS "
        f"{percent(QPS_CHANGE, 1)}, can only be imitated here: see `ab-test` and `cost`."
    )
    return f"{head}\n\n" + table(["experiment", "on", "what came out"], rows, words=3)


def _section(experiment: Experiment, results: Sequence[Result], folder: str) -> str:
    parts = [
        f"## {experiment.title}",
        f"**The paper.** {experiment.claim}",
        f"**What differs, and why.** {experiment.differs}",
    ]
    for result in results:
        alt = f"{experiment.title}: {result.where}"
        parts += [
            f"### {result.where}{_protocol(result)}",
            experiment.verdict(result),
            f"![{alt}]({folder}/{quote(result.stem)}.png)",
            experiment.markdown(result),
            f"`{result.command}` · {_minutes(result.seconds)} · "
            + ", ".join(f"{name} {number}" for name, number in result.versions.items())
            + f" · [JSON]({folder}/{quote(result.stem)}.json)",
        ]
    return "\n\n".join(parts)


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
