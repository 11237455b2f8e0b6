"""The ladder: from the published gate to today's default, one change per rung, and rivals trained as the default is."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from daes.embedding import METHODS
from daes.experiments.compare import read_predictions, with_predictions
from daes.experiments.log import ResultLog
from daes.experiments.method_tests import method_tests
from daes.experiments.rivals import RIVALS
from daes.experiments.runner import run_missing
from daes.experiments.trial import Trial, TrialResult, run_trial
from daes.formatting import counted
from daes.paper.experiment import Execution, Experiment, ExperimentSettings, Findings, OutOfTimeError
from daes.paper.judging import Judgement
from daes.paper.ladder_figure import draw
from daes.paper.ladder_text import MEASURES, RIVAL, RUNG, SUMMARY, markdown, verdict
from daes.paper.published import PAPER_METHODS, as_published
from daes.paper.result import ExperimentResult
from daes.paper.titles import method_title
from daes.stream.dataset import Dataset
from daes.training.config import TrainConfig, suggest_batch_size

EXCLUDED = {"hotel_bookings": ("arrival_date",), "nyc_green_tip": ("pickup",), "weather_aus": ("date",)}
"""Columns that spell out the clock."""
STREAMS = (
    "criteo_137k",
    "flights",
    "kddcup12_click",
    "hotel_bookings",
    "nyc_green_tip",
    "bank_marketing",
    "weather_aus",
)
BACKBONES = ("deepfm", "dcnv2")
GIVEN = {"none": "", "plain": ", plain inputs", "evidence": ", evidence", "both": ", same inputs"}
"""What a rival is given of the default's inputs, and how its label ends."""
DEFAULT = "+ recent errors (the default)"
_ADAM = {"optimizer": "adam", "learning_rate": 1e-3, "batch_size": 256}
_UNNORMALISED = partial(as_published, batch_norm=False, dropout=0.0)
_PLAIN = ("score", "value")


@dataclass(frozen=True)
class Rung:
    """What is trained under a label.

    Args:
        method: a method, or a rival that has no backbone.
        options: of the method.
        model: further arguments of `CTRModel.from_sample`.
        train: arguments of `TrainConfig`; without a batch size it is the default's, which goes by the rows.
        network: gives arguments of `CTRModel.from_sample` that depend on the backbone.
        group: RUNG, or what a rival is given (`GIVEN`), or RIVAL for one without a backbone.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    network: Callable[[str], Mapping[str, Any]] | None = None
    group: str = RUNG


RUNGS = {
    "published gate": Rung("daes-gate", train=_ADAM, network=as_published),
    "+ hats, 100 knots, linear path": Rung("daes", {"plain": []}, train=_ADAM, network=as_published),
    "+ plain inputs": Rung("daes", train=_ADAM, network=as_published),
    "+ no BatchNorm, no dropout": Rung("daes", train=_ADAM, network=_UNNORMALISED),
    "+ leaky ReLU, pairs × 10/n": Rung("daes", {}, {"evidence": False}, _ADAM),
    "+ Adagrad 0.03": Rung("daes", {}, {"evidence": False}, {"batch_size": 256, "table_start": 0.0}),
    "+ small first steps of tables": Rung("daes", {}, {"evidence": False}, {"batch_size": 256}),
    "+ batch size by rows": Rung("daes", {}, {"evidence": False}),
    "+ evidence": Rung("daes", {}, {"evidence": {"recent": None}}),
    DEFAULT: Rung("daes"),
    "+ 30 pairs": Rung("daes", {}, {"evidence": {"pairs": 30}}),
}
"""One change each, from top to bottom."""
ENDS = {"published gate": RUNGS["published gate"], "the default": RUNGS[DEFAULT]}
"""The first rung, and all changes at once."""


def rivals(methods: Sequence[str], given: Sequence[str], given_to: Sequence[str] | None = None) -> dict[str, Rung]:
    """Every method trained as the default is, with its authors' inputs, given some of what the default has.

    With `given_to`, only those methods are given anything.
    """
    found = {}
    for name, what in product(methods, given):
        if name in RIVALS:
            found[method_title(name)] = Rung(name, group=RIVAL)
            continue
        if what != "none" and given_to is not None and name not in given_to:
            continue
        options = dict(METHODS[name].authors)
        plain = list(_PLAIN) if what in ("plain", "both") else []
        if plain != list(METHODS[name].options["plain"]):
            options["plain"] = plain
        model = {} if what in ("evidence", "both") else {"evidence": False}
        found[f"{method_title(name)}{GIVEN[what]}"] = Rung(name, options, model, group=what)
    return found


def default_rivals() -> tuple[str, ...]:
    """The paper's methods, `plr` and our preset, and the rivals without a backbone."""
    return (*PAPER_METHODS, "plr", "daes", *RIVALS)


@dataclass(frozen=True)
class Place:
    """One trial: a rung on a stream, with a backbone and a seed."""

    stream: str
    trial: Trial

    def describe(self) -> dict[str, Any]:
        """What a line of the log says of it."""
        return {"stream": self.stream, **self.trial.describe()}


def open_stream(folder: Path, name: str, rows: int | None = None) -> Dataset:
    """A stream by name: `NAME.parquet` of the folder with a column `label`, or a dataset of that name."""
    path = folder / f"{name}.parquet"
    if path.is_file():
        return Dataset.open(str(path), label="label", exclude=list(EXCLUDED.get(name, ()))).head(rows)
    if name in ("flights", "adstream"):
        return Dataset.open("adstream:200000" if name == "adstream" else name).head(rows)
    raise FileNotFoundError(f"there is no stream {name}: {path} is no file; --data names the folder")


def run(settings: ExperimentSettings, data: Dataset | None, execution: Execution) -> Findings:
    """Train every rung and rival on every stream and backbone, and test them against each other on the rows."""
    streams, notes = _find_streams(settings, execution.data)
    names = settings.backbones or BACKBONES
    chosen, more = _choose(settings)
    places = [
        Place(stream, _trial(label, rung, backbone, seed, found.count_rows(), settings.device))
        for stream, found in streams.items()
        for seed, backbone, (label, rung) in product(range(settings.seeds), names, chosen.items())
        if rung.group != RIVAL or (backbone, seed) == (names[0], 0)
    ]
    results = _train(places, streams, settings, execution)
    trained = [(place, result) for place, result in zip(places, results, strict=True) if result.error is None]
    failed = [(place, result) for place, result in zip(places, results, strict=True) if result.error is not None]
    tests = _tests(trained, chosen, list(streams), names, execution)
    return {
        "where": counted(len(streams), "stream"),
        "training": {"backbones": list(names)},
        "streams": {name: _describe(found) for name, found in streams.items()},
        "labels": {label: {"method": rung.method, "group": rung.group} for label, rung in chosen.items()},
        "default": _default(chosen),
        "scores": _scores(trained, names),
        "eighths": _eighths(trained),
        "seconds": _seconds(trained),
        "tests": tests,
        "failures": [f"{p.trial.label} on {p.stream}, {p.trial.backbone}: {r.error}" for p, r in failed],
        "notes": [*notes, *more],
    }


def _find_streams(settings: ExperimentSettings, folder: Path) -> tuple[dict[str, Dataset], list[str]]:
    """The streams asked for, all of which must be there, or those of `STREAMS` that are."""
    found, notes = {}, []
    for name in settings.streams or STREAMS:
        try:
            found[name] = open_stream(folder, name, settings.rows)
        except (FileNotFoundError, ImportError) as error:
            if settings.streams is not None:
                raise
            notes.append(f"{name} is left out: {error}")
    if not found:
        raise FileNotFoundError(f"there are no streams in {folder}; --data names their folder")
    return found, notes


def _choose(settings: ExperimentSettings) -> tuple[dict[str, Rung], list[str]]:
    """The rungs and the rivals; LightGBM is left out, with a note, where it is not installed."""
    methods, notes = settings.methods or default_rivals(), []
    if "lightgbm" in methods and find_spec("lightgbm") is None:
        methods = tuple(name for name in methods if name != "lightgbm")
        notes.append("LightGBM is not installed and left out")
    return {**(RUNGS if settings.rungs == "all" else ENDS), **rivals(methods, settings.given, settings.given_to)}, notes


def _default(chosen: Mapping[str, Rung]) -> str:
    """The label of the default, which goes by the rungs that are trained."""
    return next(label for label, rung in chosen.items() if rung is RUNGS[DEFAULT])


def _trial(label: str, rung: Rung, backbone: str, seed: int, rows: int, device: str) -> Trial:
    return Trial(
        label,
        rung.method,
        backbone,
        seed,
        train=TrainConfig(bad_batch="skip", **{"batch_size": suggest_batch_size(rows), **rung.train}),
        model={
            **(rung.network(backbone) if rung.network else {}),
            **rung.model,
            "embedding_options": dict(rung.options),
        },
        # The second half is judged: no offline method may be fitted on rows of it.
        sample_rows=max(min(10_000, rows // 2), 1),
        refit=True,
        device=device,
    )


def _train(
    places: Sequence[Place], streams: Mapping[str, Dataset], settings: ExperimentSettings, execution: Execution
) -> list[TrialResult]:
    prints = {name: found.fingerprint() for name, found in streams.items()}
    keys = [place.trial.key(prints[place.stream]) for place in places]
    items = dict(zip(keys, places, strict=True))
    with ResultLog(execution.folder) as log:
        for place, content in run_missing(
            _run_place,
            items,
            log,
            shared=(execution.data, settings.rows),
            describe=Place.describe,
            jobs=execution.jobs,
            deadline=execution.deadline,
        ):
            outcome = content.get("error") or f"{content['metrics']['half_auc']:.4f}, {content['seconds']:.0f} s"
            trial, done = place.trial, sum(key in log for key in items)
            execution.note(f"{done}/{len(items)} {place.stream} {trial.label} {trial.backbone} {trial.seed}: {outcome}")
        missing = sum(key not in log.results for key in items)
        if missing:
            raise OutOfTimeError(f"{len(items) - missing} of {len(items)} trials are done")
        contents = [{name: one for name, one in log.results[key].items() if name != "stream"} for key in keys]
        return [
            replace(
                TrialResult.from_dict(content), label=place.trial.label, predictions=partial(read_predictions, log, key)
            )
            for place, key, content in zip(places, keys, contents, strict=True)
        ]


def _run_place(shared: tuple[Path, int | None], place: Place, note: Callable[[Any], None]) -> dict[str, Any]:
    torch.set_num_threads(1)
    return with_predictions(run_trial(place.trial, _in_memory(*shared, place.stream)))


@cache
def _in_memory(folder: Path, rows: int | None, name: str) -> Dataset:
    """Each process reads a stream once."""
    return open_stream(folder, name, rows).in_memory()


def _describe(data: Dataset) -> Findings:
    rows = data.count_rows()
    schema = data.schema
    return {
        "rows": rows,
        "numerical": schema.num_numerical,
        "categorical": schema.num_categorical,
        "batch_size": suggest_batch_size(rows),
        "fingerprint": data.fingerprint()[:16],
    }


Trained = Sequence[tuple[Place, TrialResult]]


def _cells(trained: Trained, backbones: Sequence[str]) -> Iterator[tuple[Place, str, TrialResult]]:
    """Every result with its backbone; a rival's with each of them."""
    for place, result in trained:
        for backbone in backbones if place.trial.method in RIVALS else [place.trial.backbone]:
            yield place, backbone, result


def _scores(trained: Trained, backbones: Sequence[str]) -> Findings:
    """Label → stream → backbone → measure → one value per seed."""
    found: Findings = {}
    for place, backbone, result in _cells(trained, backbones):
        cell = found.setdefault(place.trial.label, {}).setdefault(place.stream, {}).setdefault(backbone, {})
        for measure in MEASURES:
            cell.setdefault(measure, []).append(result.metrics[measure])
    return found


def _eighths(trained: Trained) -> Findings:
    """Label → stream → the mean AUC, over backbones and seeds, of each eighth."""
    curves: dict[str, dict[str, list[list[float]]]] = {}
    for place, result in trained:
        curves.setdefault(place.trial.label, {}).setdefault(place.stream, []).append(result.eighths["auc"])
    return {
        label: {stream: [fmean(part) for part in zip(*several, strict=True)] for stream, several in by_stream.items()}
        for label, by_stream in curves.items()
    }


def _seconds(trained: Trained) -> Findings:
    """Label → stream → the mean time of a trial."""
    times: dict[str, dict[str, list[float]]] = {}
    for place, result in trained:
        times.setdefault(place.trial.label, {}).setdefault(place.stream, []).append(result.seconds)
    return {label: {name: round(fmean(found), 1) for name, found in by.items()} for label, by in times.items()}


def _tests(
    trained: Trained, chosen: Mapping[str, Rung], streams: Sequence[str], backbones: Sequence[str], execution: Execution
) -> list[Findings]:
    """Each rung against the one before it and the default against every rival, cell by cell; uncorrected."""
    rungs = [label for label, rung in chosen.items() if rung.group == RUNG]
    pairs = [
        *zip(rungs[1:], rungs, strict=False),
        *((_default(chosen), label) for label in chosen if label not in rungs),
    ]
    found: list[Findings] = []
    for number, (stream, backbone) in enumerate(product(streams, backbones), start=1):
        results = [
            replace(result, backbone=name)
            for place, name, result in _cells(trained, backbones)
            if (place.stream, name) == (stream, backbone)
        ]
        for test in method_tests(results, pairs, [backbone], [SUMMARY]):
            kept = ("backbone", "subject", "baseline", "difference", "low", "high", "delong", "rows")
            found.append({"stream": stream, **{name: getattr(test, name) for name in kept}})
        execution.note(f"tested {number}/{len(streams) * len(backbones)}: {stream}, {backbone}")
    return found


def judge(result: ExperimentResult) -> Judgement:
    """Nothing: the paper has no such table."""
    return (), verdict(result)


EXPERIMENT = Experiment(
    name="ladder",
    title="From the published gate to the default",
    what="one change per rung on seven real streams, and every rival trained as the default is",
    claim="",
    differs="",
    run=run,
    markdown=markdown,
    verdict=verdict,
    judge=judge,
    draw=draw,
    uses=("rows", "seeds", "methods", "backbones", "streams", "given", "given_to", "rungs", "device"),
    of_the_paper=False,
)
