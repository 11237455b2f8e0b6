"""What an experiment is: its run, description and figure, with its settings, and when a claim holds."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from daes.backbone import BACKBONES
from daes.choices import check_choice, check_choices
from daes.embedding import METHODS
from daes.experiments.log import is_past
from daes.experiments.rivals import RIVALS
from daes.stream.dataset import Dataset

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from daes.paper.result import ExperimentResult

TRAINING = ("rows", "seeds", "protocol", "recipe", "batch_size", "tune", "methods", "backbones", "device")
"""The settings of experiments that train and evaluate models."""
GIVEN = ("none", "plain", "evidence", "both")
"""Which of the default's inputs `ladder` can give to rivals."""
Findings = dict[str, Any]
"""The findings of a run as plain values: their JSON must suffice to describe and to draw them."""
Part = bool | None
"""Whether a part of a claim holds; None where the result points that way but may be chance."""
Judgement = tuple[Sequence[Part], str]
"""Which parts of a claim hold in a result (none where nothing is judged), and a sentence or two for an overview."""
STANDARD_ERRORS = 4
"""How far a simulation may differ from theory by chance."""
ENOUGH_SEEDS = 3
"""Minimum number of seeds for an interval between seeds."""


class OutOfTimeError(Exception):
    """The time limit was reached before the end; finished work is kept and reused by a run that resumes."""


@dataclass(frozen=True)
class ExperimentSettings:
    """What determines the numbers of a run. Validated once, here.

    Args:
        rows: maximum number of rows (or of values, where a single column is streamed); None for all.
        seeds: number of seeds: 0, 1, …, seeds − 1.
        protocol: "stream", one pass in which each batch is scored before it is trained on, or "paper", offline:
            chronological training, validation and test parts.
        recipe: "paper", its training (Adam, BatchNorm, dropout, L2), or "default", ours (Adagrad, none of the others,
            small batches, numbers scaled as each method's authors do, offline methods refitted along the stream); both
            without evidence.
        batch_size: rows per step; None for a size that suits the number of rows.
        tune: choose learning rate and L2 weight on validation data, with the same budget for every method.
        methods, backbones: which to train; None for those of the experiment.
        device: where to train.
        streams: the streams of `ladder`; None for all that are found.
        given: which of the default's inputs `ladder` gives to rivals (`GIVEN`).
        given_to: the rivals of `ladder` that are given anything; None for all.
        rungs: the rungs of `ladder`: "all", or "ends", which are the published gate and the default.

    >>> ExperimentSettings(seeds=0)
    Traceback (most recent call last):
    ValueError: seeds must be positive, got 0
    """

    rows: int | None = None
    seeds: int = 5
    protocol: Literal["stream", "paper"] = "stream"
    recipe: Literal["paper", "default"] = "paper"
    batch_size: int | None = None
    tune: bool = False
    methods: tuple[str, ...] | None = None
    backbones: tuple[str, ...] | None = None
    device: str = "cpu"
    streams: tuple[str, ...] | None = None
    given: tuple[str, ...] = GIVEN
    given_to: tuple[str, ...] | None = None
    rungs: Literal["all", "ends"] = "all"

    def __post_init__(self) -> None:
        for name in ("rows", "seeds", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be positive, got {value}")
        for name, kind in get_type_hints(ExperimentSettings).items():
            if get_origin(kind) is Literal:
                check_choice(name, getattr(self, name), get_args(kind))
        if self.recipe == "default" and self.tune:
            raise ValueError(
                "tune searches the paper's grid of learning rate and L2: it must be off with recipe=default"
            )
        methods = (*METHODS, *RIVALS)
        lists = {"methods": methods, "given_to": methods, "backbones": tuple(BACKBONES), "given": GIVEN}
        for name, known in lists.items():
            if getattr(self, name) is not None:
                check_choices(name, getattr(self, name), known)

    def simulated_rows(self, most: int, least: int) -> int:
        """The length of a simulated stream: `rows`, at most `most`; fewer than `least` are an error."""
        rows = most if self.rows is None else min(self.rows, most)
        if rows < least:
            raise ValueError(f"rows must be {least:,} or more, got {rows}")
        return rows


@dataclass(frozen=True)
class Execution:
    """How a run is carried out, which does not affect its numbers.

    Args:
        folder: where results go (`run_experiment`), or unfinished work (`Experiment.run`).
        jobs: number of processes.
        resume: reuse finished work.
        deadline: value of `time.monotonic` at which to stop after the piece in progress; None for no limit.
        data: the folder of the ladder's streams.
        note: called with lines of progress.
    """

    folder: Path
    jobs: int = 1
    resume: bool = False
    deadline: float | None = None
    data: Path = Path("data")
    note: Callable[[str], None] = field(default=lambda line: None)

    def check_time(self, done: str) -> None:
        """Stop the run if the deadline has passed; `done` says how far it got."""
        if is_past(self.deadline):
            raise OutOfTimeError(done)


class Experiment(ABC):
    """One table or figure of the paper, or one of ours about it.

    Attributes:
        name: its name in `daes paper`.
        title: a heading.
        what: one sentence for the list.
        claim: what the paper says or shows.
        differs: what is different here, and why.
        judged_by: the parts by which the claim is judged, in Markdown.
        data: the default data sets, as `Dataset.open` takes them; empty where it needs none.
        accepts: the data sets it can run on; None for all.
        uses: the settings that it depends on. All others are left at their defaults, and only these are stored with a
            result, shown in its command and compared with those of an existing result.
        of_the_paper: whether it is part of `all` and of the page about the paper.
    """

    name: str
    title: str
    what: str
    claim: str = ""
    differs: str = ""
    judged_by: str = ""
    data: tuple[str, ...] = ()
    accepts: tuple[str, ...] | None = None
    uses: tuple[str, ...] = ("rows", "seeds")
    of_the_paper: bool = True

    def __init_subclass__(cls) -> None:
        for name in ("claim", "differs", "judged_by"):
            setattr(cls, name, cleandoc(getattr(cls, name)))

    @abstractmethod
    def run(self, settings: ExperimentSettings, data: Dataset | None, execution: Execution) -> Findings:
        """Do the work; `data` is None where none is needed."""

    @abstractmethod
    def markdown(self, result: "ExperimentResult") -> str:
        """Describe a result."""

    @abstractmethod
    def judge(self, result: "ExperimentResult") -> Judgement:
        """Which parts of the claim hold in a result (none where nothing is judged), and a sentence for an overview."""

    def verdict(self, result: "ExperimentResult") -> str:
        """The outcome in more words; by default the sentence of `judge`."""
        return self.judge(result)[1]

    @abstractmethod
    def draw(self, result: "ExperimentResult") -> "Figure":
        """Draw a result, from its JSON alone."""

    def used(self, settings: ExperimentSettings) -> ExperimentSettings:
        """The settings that it uses, with defaults for all others."""
        return ExperimentSettings(**{name: getattr(settings, name) for name in self.uses})


def most(some: int, of: int) -> bool:
    """More than half.

    >>> most(2, 3), most(1, 2), most(0, 0)
    (True, False, False)
    """
    return 2 * some > of


def shown(ahead: int, surely: int, of: int) -> Part:
    """Whether something is significantly better in most cases; None if it is ahead in most, but not significantly.

    >>> shown(6, 4, 6), shown(6, 1, 6), shown(1, 1, 6)
    (True, None, False)
    """
    return True if most(surely, of) else None if most(ahead, of) else False


def outcome(parts: Sequence[Part]) -> str:
    """Whether a claim holds, by its parts; it partly holds if the first part does, or at least half of them.

    >>> [outcome(parts) for parts in ([True, True], [True, False], [True, None], [False], [])]
    ['holds', 'partly holds', 'partly holds', 'does not hold', '–']
    >>> [outcome(parts) for parts in ([None], [None, False], [True, False, False], [False, False, True])]
    ['not shown', 'does not hold', 'partly holds', 'does not hold']
    """
    if not parts:
        return "–"
    if all(parts):
        return "holds"
    if parts[0] or 2 * sum(part is True for part in parts) >= len(parts):
        return "partly holds"
    return "not shown" if all(part is None for part in parts) else "does not hold"
