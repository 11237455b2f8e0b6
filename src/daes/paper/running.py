"""Runs experiments on data sets and stores their results: JSON, Markdown and a figure each."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

from daes.experiments.log import ARRAYS, LOCK, RESULTS
from daes.paper import EXPERIMENTS, figures
from daes.paper.data import describe, name_in, open_dataset
from daes.paper.experiment import Execution, Experiment, ExperimentSettings
from daes.paper.result import ExperimentResult, command_of, settings_of, versions
from daes.storage.durable import remove_temporary_files, write_text
from daes.storage.lock import WriterLock
from daes.storage.run_folder import plain

WORK = "work"
"""The folder within the results that holds their trials."""
CLOCK = "seconds"
"""The file there with the time that an unfinished run has taken so far; a finished one has none."""


def plan(names: Sequence[str], data: Sequence[str]) -> Iterator[tuple[Experiment, str | None]]:
    """Which experiments run on which data: the given data, or else the experiment's default.

    >>> [(experiment.name, data) for experiment, data in plan(["jump-bias", "stationarity"], [])]
    [('jump-bias', None), ('stationarity', 'adstream'), ('stationarity', 'flights')]
    """
    for name in names:
        experiment = find(name)
        if not experiment.data:
            yield experiment, None
            continue
        for one in data or experiment.data:
            if experiment.accepts is None or name_in(one) in experiment.accepts:
                yield experiment, one


def find(name: str) -> Experiment:
    """An experiment by name; an error lists them."""
    if name not in EXPERIMENTS:
        raise ValueError(f"there is no experiment {name!r}; there are: all, {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def run_experiment(
    experiment: Experiment,
    settings: ExperimentSettings,
    data: str | None,
    execution: Execution,
    *,
    overwrite: bool = False,
) -> tuple[ExperimentResult, bool]:
    """Run one experiment and write `STEM.json`, `STEM.md` and its figure into the folder of the execution.

    Args:
        experiment, settings: what to run.
        data: the data set, such as `criteo:PATH`.
        execution: how to run it; unfinished work is kept in `work/STEM` of its folder.
        overwrite: run again; an existing result is replaced once the new one is complete. Without it, an existing
            result is an error unless `execution.resume` is set: then a result with the same settings, data and code is
            kept, one with failures is run again, and finished trials are reused.

    Returns:
        the result, and whether it existed already.

    Raises:
        OutOfTimeError: the deadline has passed; finished work is kept.
    """
    started = monotonic()
    settings = experiment.used(settings)
    opened = None if data is None else open_dataset(data)
    description = None if opened is None else describe(opened.head(settings.rows))
    if description is not None and not description["numerical"]:
        raise ValueError(f"{experiment.name} needs numerical features; {description['source']} has none")
    chosen, command = settings_of(experiment, settings), command_of(experiment, settings, data)
    fresh = ExperimentResult(experiment.name, description, chosen, command, versions(), 0.0, {})
    out = execution.folder
    path, work = out / f"{fresh.stem}.json", out / WORK / fresh.stem
    clock = work / CLOCK
    for there in (path, work / RESULTS, clock):
        if there.exists() and not (execution.resume or overwrite):
            raise ValueError(f"{there} exists already: --resume continues with it, --overwrite replaces it")
    before = 0.0
    if clock.exists() and not overwrite:  # an earlier run was stopped
        before = float(clock.read_text(encoding="utf-8"))
    elif path.exists() and not overwrite:
        found = ExperimentResult.load(path)
        _check_same(found, path, fresh)
        if not found.failures:
            if not all((out / f"{found.stem}{ending}").exists() for ending in (".md", ".png")):
                present(found, out)  # someone removed them
            return found, True
        before = found.seconds
    execution.check_time("not begun")
    if overwrite:
        _forget_results(work)
    work.mkdir(parents=True, exist_ok=True)
    write_text(clock, f"{before:.3f}\n")
    try:
        findings = experiment.run(settings, opened, replace(execution, folder=work))
        seconds = plain(round(before + monotonic() - started, 3))
        if description is not None and "rows" in findings:
            description["rows"] = findings["rows"]  # an experiment may not use all rows
        result = replace(fresh, data=plain(description), seconds=seconds, results=plain(findings))
        remove_temporary_files(out, lambda name: name in (path.name, path.with_suffix(".md").name))
        experiment.verdict(result)  # a result that cannot be described is not finished
        present(result, out)  # before the JSON, which marks the result as complete
    except BaseException:
        if (work / RESULTS).exists():
            write_text(clock, f"{before + monotonic() - started:.3f}\n")
        else:
            _clean_up(work)
        raise
    result.save(out)
    _clean_up(work)
    return result, False


def _check_same(found: ExperimentResult, path: Path, asked: ExperimentResult) -> None:
    """An existing result must be the one that was asked for."""
    there, wanted = (
        {**one.settings, "data": data.get("source"), "fingerprint of the data": data.get("fingerprint")}
        for one in (found, asked)
        for data in (one.data or {},)
    )
    for name, value in wanted.items():
        if there.get(name) != value:
            raise ValueError(
                f"{path} was made with {name}={there.get(name)!r}; {value!r} is asked for; use --overwrite"
            )
    if found.versions.get("code") != asked.versions["code"]:
        raise ValueError(
            f"{path} was made by another version of the code: --overwrite runs it again; if the file is removed, "
            "--resume does so too and reuses finished trials that this version would repeat"
        )


def present(result: ExperimentResult, folder: Path) -> Path:
    """Write a result's Markdown and figure beside its JSON; return the path of the figure."""
    text = find(result.experiment).markdown(result) + "\n"
    figure = draw(result, folder / f"{result.stem}.png")
    write_text(folder / f"{result.stem}.md", text)
    return figure


def draw(result: ExperimentResult, path: Path) -> Path:
    """Draw a result, from its JSON alone."""
    with figures.style():
        return figures.save(find(result.experiment).draw(result), path)


def _clean_up(work: Path) -> None:
    """Forget the time of an unfinished run, and remove folders that are empty."""
    (work / CLOCK).unlink(missing_ok=True)
    for folder in (work, work.parent):
        if not any(folder.iterdir()):
            folder.rmdir()


def _forget_results(work: Path) -> None:
    """Remove the trials of a result, and nothing else, while no one else writes to them."""
    if not work.is_dir():
        return
    lock = WriterLock(work / LOCK)
    lock.acquire()
    for name in (RESULTS, CLOCK):
        (work / name).unlink(missing_ok=True)
    for path in (work / ARRAYS).glob("*.safetensors"):
        path.unlink()
    remove_temporary_files(work, lambda name: name == CLOCK)
    lock.release()
