"""Runs experiments on data sets and keeps what comes of them: JSON, Markdown and a figure each."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

from daes.paper import EXPERIMENTS, figures
from daes.paper.data import DataSet
from daes.paper.experiment import Experiment, Means, OutOfTimeError, Settings
from daes.paper.result import Result, command_of, plain, settings_of, versions

WORK = "work"
"""The folder, within the results, of what is finished of unfinished runs."""


def plan(names: Sequence[str], data: Sequence[DataSet]) -> Iterator[tuple[Experiment, DataSet | None]]:
    """Which experiments run on which data: the data given, or the experiment's own where none are.

    >>> [(experiment.name, data and data.name) for experiment, data in plan(["jump-bias", "stationarity"], [])]
    [('jump-bias', None), ('stationarity', 'adstream'), ('stationarity', 'flights')]
    """
    for name in names:
        experiment = find(name)
        if not experiment.data:
            yield experiment, None
        for one in data or [DataSet(spec) for spec in experiment.data]:
            if experiment.takes(one):
                yield experiment, one


def find(name: str) -> Experiment:
    """An experiment by name; an error lists them."""
    if name not in EXPERIMENTS:
        raise ValueError(f"there is no experiment {name!r}; there are: all, {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def run_experiment(
    experiment: Experiment,
    settings: Settings,
    data: DataSet | None,
    out: Path,
    means: Means,
    *,
    overwrite: bool = False,
    ending: str = ".png",
) -> tuple[Result, bool]:
    """Run one experiment and write `STEM.json`, `STEM.md` and its figure into a folder.

    Args:
        experiment, settings, data: what to run.
        out: the folder.
        means: how; its folder is not used, the work is kept in `work/STEM` of `out`.
        overwrite: make anew what is there. What is there is an error otherwise, unless `means.resume`: then a result is
            kept if it is of the same settings and data, and finished cells are re-used.
        ending: of the figure, .png or .svg.

    Returns:
        the result, and whether it was there already.

    Raises:
        OutOfTimeError: past the deadline; what is finished is kept.
    """
    description = None if data is None else data.describe(settings.rows)
    chosen = settings_of(experiment, settings)
    started = monotonic()
    fresh = Result(experiment.name, description, chosen, command_of(experiment, settings, data), versions(), 0.0, {})
    path, work = out / f"{fresh.stem}.json", out / WORK / fresh.stem
    for there in (path, work):
        if there.exists() and not (means.resume or overwrite):
            raise ValueError(f"{there} exists already: --resume goes on with what is there, --overwrite replaces it")
    if overwrite:
        _forget(path, work)
    if path.exists():
        return _same(Result.load(path), path, fresh), True
    clock = work / "seconds"
    before = float(clock.read_text()) if clock.exists() else 0.0
    means.check_time("not begun")
    try:
        findings = experiment.run(settings, data, _with_folder(means, work))
    except (OutOfTimeError, KeyboardInterrupt):
        work.mkdir(parents=True, exist_ok=True)
        clock.write_text(f"{before + monotonic() - started:.1f}\n")
        raise
    if description is not None and "rows" in findings:
        description["rows"] = findings["rows"]  # an experiment may use other rows than all
    seconds = round(before + monotonic() - started, 1)
    result = replace(fresh, data=description, seconds=seconds, results=plain(findings))
    result = Result.load(result.save(out))  # what is told and drawn is what the file says
    present(result, out, ending)
    return result, False


def _same(found: Result, path: Path, asked: Result) -> Result:
    """A result that is there, if it is the one that was asked for."""
    there, wanted = ({**one.settings, "data": (one.data or {}).get("source")} for one in (found, asked))
    for name, value in wanted.items():
        if there.get(name) != value:
            raise ValueError(
                f"{path} was made with {name}={there.get(name)!r}, however: {value!r} is asked for; use --overwrite"
            )
    return found


def present(result: Result, folder: Path, ending: str = ".png") -> Path:
    """Write a result's Markdown and figure beside its JSON; the path of the figure."""
    text = find(result.experiment).markdown(result) + "\n"
    (folder / f"{result.stem}.md").write_text(text, encoding="utf-8")
    return draw(result, folder / f"{result.stem}{ending}")


def draw(result: Result, path: Path) -> Path:
    """Draw a result, from its JSON alone."""
    with figures.style():
        return figures.save(find(result.experiment).draw(result), path)


def _with_folder(means: Means, folder: Path) -> Means:
    return Means(folder, means.jobs, means.resume, means.deadline, means.note)


def _forget(path: Path, work: Path) -> None:
    """Remove a result and the cells it was made of, and nothing else."""
    for ending in (".json", ".md", ".png", ".svg"):
        path.with_suffix(ending).unlink(missing_ok=True)
    for name in ("results.jsonl", "seconds", "lock"):
        (work / name).unlink(missing_ok=True)
    if work.is_dir() and not any(work.iterdir()):
        work.rmdir()
