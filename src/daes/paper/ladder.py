"""The ladder: from the published gate to today's default, one change per rung, with rivals trained like the default."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from daes.embedding import METHODS
from daes.experiments.compare import repeat_rivals, trial_cells
from daes.experiments.method_tests import method_tests
from daes.experiments.rivals import RIVALS
from daes.experiments.scores import collect_scores
from daes.experiments.trial import MEASURES, Trial, TrialResult
from daes.formatting import counted
from daes.paper import figures, ladder_result
from daes.paper.experiment import Execution, Experiment, ExperimentSettings, Findings, Judgement
from daes.paper.ladder_result import RIVAL, RUNG, SUMMARY
from daes.paper.published import PAPER_METHODS, as_published
from daes.paper.result import ExperimentResult
from daes.paper.scores import method_title
from daes.paper.variants import Variant, run_all, sample_rows
from daes.stream.dataset import Dataset
from daes.training.config import TrainConfig, suggest_batch_size

EXCLUDED = {"hotel_bookings": ("arrival_date",), "nyc_green_tip": ("pickup",), "weather_aus": ("date",)}
"""Columns that state the time."""
STREAMS = (
    "criteo_137k",
    "flights",
    "kddcup12_click",
    "hotel_bookings",
    "nyc_green_tip",
    "bank_marketing",
    "weather_aus",
)
_BACKBONES = ("deepfm", "dcnv2")
_LABEL_ENDS = {"none": "", "plain": ", plain inputs", "evidence": ", evidence", "both": ", same inputs"}
"""The end of a rival's label, by what it is given."""
DEFAULT = "+ pairs and triples (the default)"
_ADAM = {"optimizer": "adam", "learning_rate": 1e-3, "batch_size": 256}
_UNNORMALISED = partial(as_published, batch_norm=False, dropout=0.0)
_PLAIN = ("score", "value")
Results = Mapping[str, Sequence[TrialResult]]
"""By stream."""


@dataclass(frozen=True)
class Rung(Variant):
    """A model to train.

    Args:
        train: arguments of `TrainConfig`; the default batch size depends on the number of rows.
        network: returns arguments of `CTRModel.from_sample` that depend on the backbone.
        group: RUNG, or what a rival is given (`GIVEN`), or RIVAL for one without a backbone.
    """

    train: Mapping[str, Any] = field(default_factory=dict)
    network: Callable[[str], Mapping[str, Any]] = lambda backbone: {}
    group: str = RUNG


RUNGS = {
    "published gate": Rung("daes-gate", train=_ADAM, network=as_published),
    "+ hats, 100 knots, linear path": Rung("daes", {"plain": []}, train=_ADAM, network=as_published),
    "+ plain inputs": Rung("daes", train=_ADAM, network=as_published),
    "+ no BatchNorm, no dropout": Rung("daes", train=_ADAM, network=_UNNORMALISED),
    "+ leaky ReLU, pairs × 10/n": Rung("daes", model={"evidence": False}, train=_ADAM),
    "+ Adagrad 0.03": Rung("daes", model={"evidence": False}, train={"batch_size": 256, "table_start": 0.0}),
    "+ small first steps of tables": Rung("daes", model={"evidence": False}, train={"batch_size": 256}),
    "+ batch size by rows": Rung("daes", {}, {"evidence": False}),
    "+ evidence": Rung("daes", {}, {"evidence": {"recent": None, "pairs": 0}}),
    "+ recent errors": Rung("daes", {}, {"evidence": {"pairs": 0}}),
    DEFAULT: Rung("daes"),
}
"""One change each, from top to bottom."""
ENDS = {"published gate": RUNGS["published gate"], "the default": RUNGS[DEFAULT]}
"""The first rung, and all changes at once."""


class Ladder(Experiment):
    name = "ladder"
    title = "From the published gate to the default"
    what = "one change per rung on seven real streams, and every rival trained like the default"
    judged_by = "Nothing: the paper has no such table."
    uses = ("rows", "seeds", "methods", "backbones", "streams", "given", "given_to", "rungs", "device")
    of_the_paper = False

    def run(self, settings: ExperimentSettings, data: Dataset | None, execution: Execution) -> Findings:
        """Train every rung and rival on every stream and backbone, and test them against each other on the rows."""
        streams, notes = _find_streams(settings, execution.data)
        backbones = settings.backbones or _BACKBONES
        chosen, more = _choose(settings)
        methods = {label: rung.method for label, rung in chosen.items()}
        results, failures, measures = {}, [], {name: name for name in MEASURES["stream"]}
        for stream, data in streams.items():
            trials = [
                _trial(label, chosen[label], backbone, seed, data.count_rows(), settings.device)
                for label, backbone, seed in trial_cells(methods, backbones, range(settings.seeds))
            ]
            found = run_all(trials, data, _noting(execution, stream))
            failures += [
                f"{one.label} on {stream}, {one.backbone}: {one.error}" for one in found if one.error is not None
            ]
            results[stream] = repeat_rivals([one for one in found if one.error is None], backbones)
        return {
            "where": counted(len(streams), "stream"),
            "training": {"backbones": list(backbones)},
            "streams": {name: _describe(data) for name, data in streams.items()},
            "labels": {label: {"method": rung.method, "group": rung.group} for label, rung in chosen.items()},
            "default": _default(chosen),
            "scores": _by_label(results, lambda trained: collect_scores(trained, measures)[trained[0].label]),
            "eighths": _by_label(results, _eighths),
            "seconds": _by_label(results, lambda trained: round(fmean(one.seconds for one in trained), 1)),
            "tests": _tests(results, chosen, backbones, execution),
            "failures": failures,
            "notes": [*notes, *more],
        }

    def markdown(self, result: ExperimentResult) -> str:
        return ladder_result.markdown(result)

    def judge(self, result: ExperimentResult) -> Judgement:
        return (), ladder_result.verdict(result)

    def draw(self, result: ExperimentResult) -> "figures.Figure":
        return ladder_result.draw(result)


def rivals(methods: Sequence[str], given: Sequence[str], given_to: Sequence[str] | None = None) -> dict[str, Rung]:
    """Every method trained like the default, with its authors' inputs, given some of the default's inputs.

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
        found[f"{method_title(name)}{_LABEL_ENDS[what]}"] = Rung(name, options, model, group=what)
    return found


def open_stream(folder: Path, name: str, rows: int | None = None) -> Dataset:
    """A stream by name: `NAME.parquet` of the folder with a column `label`, or a data set of that name."""
    path = folder / f"{name}.parquet"
    if path.is_file():
        return Dataset.open(str(path), label="label", exclude=list(EXCLUDED.get(name, ()))).head(rows)
    if name in ("flights", "adstream"):
        return Dataset.open("adstream:200000" if name == "adstream" else name).head(rows)
    raise FileNotFoundError(f"there is no stream {name}: {path} does not exist; --data names the folder")


def _find_streams(settings: ExperimentSettings, folder: Path) -> tuple[dict[str, Dataset], list[str]]:
    """The streams asked for, all of which must exist, or those of `STREAMS` that do."""
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
    """The rungs and the rivals; LightGBM is left out, with a note, if it is not installed."""
    methods, notes = settings.methods or (*PAPER_METHODS, "plr", "daes", *RIVALS), []
    if "lightgbm" in methods and find_spec("lightgbm") is None:
        methods = tuple(name for name in methods if name != "lightgbm")
        notes.append("LightGBM is not installed and left out")
    return {**(RUNGS if settings.rungs == "all" else ENDS), **rivals(methods, settings.given, settings.given_to)}, notes


def _default(chosen: Mapping[str, Rung]) -> str:
    """The label of the default, which depends on the rungs that are trained."""
    return next(label for label, rung in chosen.items() if rung is RUNGS[DEFAULT])


def _trial(label: str, rung: Rung, backbone: str, seed: int, rows: int, device: str) -> Trial:
    return Trial(
        label,
        rung.method,
        backbone,
        seed,
        train=TrainConfig(bad_batch="skip", **{"batch_size": suggest_batch_size(rows), **rung.train}),
        model={**rung.network(backbone), **rung.model, "embedding_options": dict(rung.options)},
        sample_rows=sample_rows(rows),
        refit=True,
        device=device,
    )


def _noting(execution: Execution, stream: str) -> Execution:
    """The execution with the stream's name before each line of progress."""
    return replace(execution, note=lambda line: execution.note(f"{stream}: {line}"))


def _describe(data: Dataset) -> Findings:
    rows = data.count_rows()
    return {
        "rows": rows,
        "numerical": data.schema.num_numerical,
        "categorical": data.schema.num_categorical,
        "batch_size": suggest_batch_size(rows),
        "fingerprint": data.fingerprint()[:16],
    }


def _by_label(results: Results, summary: Callable[[Sequence[TrialResult]], Any]) -> Findings:
    """Label → stream → a summary of the label's results on the stream."""
    found: dict[str, dict[str, list[TrialResult]]] = {}
    for stream, trained in results.items():
        for one in trained:
            found.setdefault(one.label, {}).setdefault(stream, []).append(one)
    return {label: {stream: summary(trained) for stream, trained in by.items()} for label, by in found.items()}


def _eighths(trained: Sequence[TrialResult]) -> list[float]:
    """The AUC of each eighth of the stream, the mean over backbones and seeds."""
    return [fmean(values) for values in zip(*(one.eighths["auc"] for one in trained), strict=True)]


def _tests(
    results: Results, chosen: Mapping[str, Rung], backbones: Sequence[str], execution: Execution
) -> list[Findings]:
    """Each rung against the one before it, and the default against every rival, cell by cell; uncorrected."""
    rungs = [label for label, rung in chosen.items() if rung.group == RUNG]
    pairs = [
        *zip(rungs[1:], rungs, strict=False),
        *((_default(chosen), label) for label in chosen if label not in rungs),
    ]
    found: list[Findings] = []
    kept = ("backbone", "subject", "baseline", "difference", "low", "high", "delong", "rows")
    for number, (stream, backbone) in enumerate(product(results, backbones), start=1):
        trained = [one for one in results[stream] if one.backbone == backbone]
        for test in method_tests(trained, pairs, [backbone], [SUMMARY]):
            found.append({"stream": stream, **{name: getattr(test, name) for name in kept}})
        execution.note(f"tested {number}/{len(results) * len(backbones)}: {stream}, {backbone}")
    return found
