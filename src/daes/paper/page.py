"""docs/reproduction.md: every experiment with the paper's claim, our numbers, the command, and what differs."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from daes.experiments.significance import LEVEL
from daes.formatting import count, duration, percent
from daes.paper import EXPERIMENTS
from daes.paper.experiment import Experiment, outcome
from daes.paper.published import ARPU_GAIN, DATASET_TITLES, DATASETS, QPS_CHANGE
from daes.paper.result import ExperimentResult, NotAResultError
from daes.storage.durable import write_text
from daes.table import markdown_table

_INTRODUCTION = """
# Reproduction of the paper

Every table and figure with numbers in *Distribution-Aware End-to-End Embedding for Streaming Numerical Features in
Click-Through Rate Prediction*, as a command, and our results. Figures 1 and 2 are diagrams and Table 1 lists properties
of DAE and DAES: they have no command. This page is generated: its numbers come from the JSON files beside the figures,
and its judgements are computed from them.

    daes paper list                 # the experiments
    daes paper NAME --data …        # run one: JSON, Markdown and a figure
    daes paper all --resume …       # run all of them; may be interrupted and resumed
    daes paper report               # write this page
"""

_DATA = """
*Criteo* is a sample of 0.3 % of the paper's file, the Criteo Display Advertising Challenge (Kaggle, 2014), in the
original order: 137,139 rows over seven days, from the public course repository MScatolin/W261-SP19-Team13-FinalProject
(as Parquet, SHA-256 35265576e57f5d530d970b876b86fea5782dde79ad078296b7c1e299ff288e0c; columns `label`, `I1`…`I13`,
`C1`…`C26`). Criteo released the data for research under its own terms, so they are not part of this repository. The
full file, train.txt of 45,840,617 rows, is offered by the Criteo AI Lab (ailab.criteo.com, "Kaggle Display Advertising
Challenge dataset"; public code fetches it from
`https://go.criteo.net/criteo-research-kaggle-display-advertising-challenge-dataset.tar.gz`, which we could not try);
`--data criteo:train.txt` reads it as it is. Most ids are rare in the sample, so absolute AUCs are below the paper's.
*Flights* are those of 2013 from New York, a public stream with strong drift that the paper does not use. The *simulated
ad stream* replaces the paper's industrial data, which are not public; whatever is simulated is labelled so. *AutoML*
runs if its files are given.
"""

_RECIPE = """
Unless stated otherwise, models are trained as in the paper: Adam, BatchNorm, dropout, large batches. In a single pass
that leaves all methods under-trained; [why.md](why.md) compares them with our default training. `--recipe default` runs
the experiments on this page with that training; such results are listed beside the others.
"""


def write_page(results: Path, out: Path) -> int:
    """Write the page from all results in a folder; return their number.

    Args:
        results: the folder with `*.json` and their figures.
        out: the page; figures are linked relative to it.
    """
    found = read_results(results)
    if not found:
        raise ValueError(f"{results} must hold results of `daes paper`, but has none")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, page(found, link(out.parent, results)))
    return len(found)


def read_results(folder: Path) -> list[ExperimentResult]:
    """The results of a folder, in the order of the experiments, then of the file names; other JSON is ignored."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    found = []
    for path in sorted(folder.glob("*.json")):
        with suppress(NotAResultError):
            found.append(ExperimentResult.load(path))
    order = [name for name, experiment in EXPERIMENTS.items() if experiment.of_the_paper]
    known = [result for result in found if result.experiment in order]
    return sorted(known, key=lambda result: (order.index(result.experiment), result.stem))


def page(results: Sequence[ExperimentResult], folder: str) -> str:
    """The page as Markdown; `folder` is the path of the figures relative to it."""
    names = [name for name, experiment in EXPERIMENTS.items() if experiment.of_the_paper]
    by_name = {name: [result for result in results if result.experiment == name] for name in names}
    sections = [_section(EXPERIMENTS[name], several, folder) for name, several in by_name.items() if several]
    missing = [f"`{name}`" for name, several in by_name.items() if not several]
    parts = [_INTRODUCTION.strip(), _datasets(results), _overview(by_name), *sections]
    if missing:
        parts.append(f"## Not run yet\n\nThere are no results of {', '.join(missing)} in the folder.")
    return "\n\n".join(parts) + "\n"


def _datasets(results: Sequence[ExperimentResult]) -> str:
    used = [result.data for result in results if result.data is not None]
    ours = {data["title"]: data for data in sorted(used, key=lambda data: data["rows"] or 0)}
    rows = [
        [
            title,
            data["categorical"],
            data["numerical"],
            "any number" if data["simulated"] else count(data["rows"]),
            "simulated" if data["simulated"] else "genuine",
        ]
        for title, data in ours.items()
    ]
    rows += [
        [f"the paper's {DATASET_TITLES[name]}", one["categorical"], one["numerical"], count(one["rows"]), ""]
        for name, one in DATASETS.items()
    ]
    headers = ["data set", "categorical fields", "numerical features", "rows", "kind"]
    return "\n\n".join(["## Data", _DATA.strip(), markdown_table(headers, rows)])


def _overview(by_name: Mapping[str, Sequence[ExperimentResult]]) -> str:
    rows, words = [], Counter[str]()
    for name, several in by_name.items():
        experiment = EXPERIMENTS[name]
        for result in several:
            parts, sentence = experiment.judge(result)
            words[outcome(parts)] += 1
            link = f"[`{name}`](#{_anchor(experiment.title)})" if result is several[0] else ""
            where = result.where + _protocol(result).replace(", streaming protocol", "")
            rows.append([outcome(parts), link, where, sentence])
    judged = sum(words.values()) - words[outcome(())]
    holds, partly, open_, fails = (words[outcome(parts)] for parts in ([True], [True, False], [None], [False]))
    return "\n\n".join(
        [
            "## At a glance",
            f"Does the paper's claim hold? Of {judged} results it holds in {holds}, partly holds in {partly}, is not "
            f"shown in {open_} and does not hold in {fails}.",
            "Each section below states the parts by which its claim is judged. It *holds* if all of them do and "
            "*partly holds* if the first or at least half of them do; it is *not shown* if the result points that way "
            "but may be chance, and *does not hold* otherwise; – means that nothing is judged. *Most* is more than "
            "half, even where the paper says all. A *case* is one comparison on one backbone. *Significant* is p < "
            f"{LEVEL:g} by the test named with it: on the rows where predictions were kept, otherwise a t-test between "
            "seeds, which accounts for random initialisation but not for the choice of rows.",
            _RECIPE.strip(),
            f"What the paper reports from production, revenue per user {percent(ARPU_GAIN, 3, sign=True)} and queries "
            f"per second {percent(QPS_CHANGE, 1)}, can only be approximated here: see `ab-test` and `cost`.",
            markdown_table(["claim", "experiment", "data", "outcome"], rows, names=4),
        ]
    )


def _said(result: str) -> str:
    """What stands behind "The claim".

    >>> _said("partly holds"), _said("not shown")
    ('**partly holds**', 'is **not shown**')
    """
    return "is **not shown**" if result == "not shown" else f"**{result}**"


def _section(experiment: Experiment, results: Sequence[ExperimentResult], folder: str) -> str:
    parts = [
        f"## {experiment.title}",
        f"**The paper.** {experiment.claim}",
        f"**What differs, and why.** {experiment.differs}",
        f"**Judged by.** {experiment.judged_by}",
    ]
    for result in results:
        judged, _ = experiment.judge(result)
        parts += [
            f"### {result.where}{_protocol(result)}",
            *([f"The claim {_said(outcome(judged))}."] if judged else []),
            experiment.verdict(result),
            f"![{experiment.title}: {result.where}]({folder}/{quote(result.stem)}.png)",
            experiment.markdown(result),
            f"`{result.command}` · {duration(result.seconds)} · "
            + ", ".join(f"{name} {number}" for name, number in result.versions.items())
            + f" · [JSON]({folder}/{quote(result.stem)}.json)",
        ]
    return "\n\n".join(parts)


def _protocol(result: ExperimentResult) -> str:
    """The end of a heading: how the models were trained."""
    names = {"stream": ", streaming protocol", "paper": ", the paper's protocol", None: ""}
    recipe = ", trained as the defaults are" if result.settings.get("recipe") == "default" else ""
    return names[result.settings.get("protocol")] + recipe + (", tuned" if result.settings.get("tune") else "")


def _anchor(title: str) -> str:
    """The anchor that Markdown gives a heading.

    >>> _anchor("Distribution estimation: OS, RS, JRS")
    'distribution-estimation-os-rs-jrs'
    """
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c == "-")


def link(start: Path, folder: Path) -> str:
    """The relative link to a folder from a page in the folder `start`."""
    return Path(os.path.relpath(folder.resolve(), start.resolve())).as_posix()
