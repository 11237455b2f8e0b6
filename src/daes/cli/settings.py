"""The options of the verbs that train: what to read, what to build, how to learn."""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daes.cli.options import whole_number

if TYPE_CHECKING:
    from daes.training.config import TrainConfig
    from daes.training.data import Data

DATA_HELP = (
    "A Parquet or CSV file (.csv, .tsv, also .gz and .zst), a glob, a folder or a URL of such files, or a dataset: "
    "`flights`, `adstream` (or `adstream:ROWS`), `criteo:PATH`, `automl:PATH`."
)
METHODS_HELP = (
    "efd, ewd, ld, td, multihot, youtube, dlrm, fe, autodis, deer, keyvalue, narydis, plr, ple, dae, daes-gate, "
    "daes-tran, daes"
)
BACKBONES_HELP = "fnn, widedeep, deepfm, ipnn, dcnv2, xdeepfm, lr, fm, fwfm, nfm, afm, opnn, autoint, dcn, afn, masknet"


class Names(tuple[str, ...]):
    """Names as an option gives them: separated by commas, or a list in a TOML file."""


def names(given: str | Sequence[str]) -> Names:
    """Parse names.

    >>> names("price, age"), names(["a,b"])
    (('price', 'age'), ('a,b',))
    """
    parts = given.split(",") if isinstance(given, str) else given
    return Names(part.strip() for part in parts if part.strip())


def option(*flags: str, panel: str, help: str, **more: Any) -> Any:
    """An option in a panel of the help."""
    return typer.Option(*flags, help=help, rich_help_panel=panel, **more)


def _names(flag: str, panel: str, help: str, **more: Any) -> Any:
    return option(flag, panel=panel, help=help, parser=names, metavar="LIST", **more)


def _rows(flag: str, panel: str, help: str, least: int = 1, **more: Any) -> Any:
    return option(flag, panel=panel, help=help, parser=whole_number(least), metavar="ROWS", **more)


def _number(flag: str, panel: str, help: str, least: int = 1, **more: Any) -> Any:
    return option(flag, panel=panel, help=help, parser=whole_number(least), metavar="N", **more)


DataArgument = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)]


@dataclass(frozen=True)
class Reading:
    """How to read."""

    max_rows: Annotated[int | None, _rows("--max-rows", "Reading", "Read no more than so many rows.")] = None
    format: Annotated[
        str | None,
        option("--format", panel="Reading", metavar="NAME", help="parquet or csv, where file names do not tell."),
    ] = None
    separator: Annotated[
        str | None,
        option("--separator", panel="Reading", metavar="CHAR", help="Between the fields of a CSV file."),
    ] = None
    bad_rows: Annotated[
        str | None,
        option(
            "--bad-rows",
            panel="Reading",
            metavar="POLICY",
            help="Rows of a CSV file that cannot be parsed: error (stop and name the row) or skip.",
            show_default="error",
        ),
    ] = None

    def options(self) -> dict[str, Any]:
        """Options of `daes.stream.open`."""
        return _given({name: getattr(self, name) for name in ("format", "separator", "bad_rows")})


@dataclass(frozen=True)
class Columns:
    """What the columns mean."""

    label: Annotated[
        str | None,
        option("--label", panel="Columns", metavar="NAME", help="The column of 0 and 1: was it clicked."),
    ] = None
    numerical: Annotated[Names | None, _names("--numerical", "Columns", "The numerical features.")] = None
    categorical: Annotated[
        Names | None,
        _names("--categorical", "Columns", "The categorical features; numbers may be among them."),
    ] = None
    time: Annotated[
        str | None, option("--time", panel="Columns", metavar="NAME", help="The column that orders the stream.")
    ] = None
    weight: Annotated[
        str | None, option("--weight", panel="Columns", metavar="NAME", help="The column of sample weights.")
    ] = None
    exclude: Annotated[Names | None, _names("--exclude", "Columns", "Columns to leave alone.")] = None

    def find(self, what: str, reading: Reading, *, needs_label: bool = True) -> "Data":
        """The data with what its columns mean: named here, or inferred."""
        from daes.training.data import Data

        return Data.find(
            what,
            label=self.label,
            numerical=self.numerical,
            categorical=self.categorical,
            time=self.time,
            weight=self.weight,
            exclude=self.exclude or (),
            options=reading.options(),
            max_rows=reading.max_rows,
            needs_label=needs_label,
        )


@dataclass(frozen=True)
class ModelOptions:
    """What to build, method and backbone apart."""

    dim: Annotated[int, _number("--dim", "Model", "Dimension of every embedding.")] = 16
    hidden: Annotated[
        Names | None,
        _names("--hidden", "Model", "Widths of the MLP's hidden layers.", show_default="128,32,8"),
    ] = None
    dropout: Annotated[
        float | None,
        option("--dropout", panel="Model", help="Part of the hidden units that are dropped.", show_default="0.2"),
    ] = None
    batch_norm: Annotated[
        bool | None,
        option(
            "--batch-norm/--no-batch-norm",
            panel="Model",
            help="Whether hidden layers are normalised.",
            show_default="batch-norm",
        ),
    ] = None
    l2: Annotated[float, option("--l2", panel="Model", help="λ of the paper's loss, cross-entropy + λ‖Θ‖².")] = 0.0
    tables: Annotated[
        str,
        option(
            "--tables",
            panel="Model",
            metavar="MODE",
            help="How a category finds its row: hash, or vocabulary (learned in the stream).",
        ),
    ] = "hash"
    table_size: Annotated[
        int | None,
        _number(
            "--table-size", "Model", "Rows of each category's table.", show_default="by the cardinalities in the sample"
        ),
    ] = None
    sparse: Annotated[
        bool, option("--sparse", panel="Model", help="Sparse gradients, for very large tables; excludes --l2.")
    ] = False
    context: Annotated[
        str,
        option(
            "--context",
            panel="Model",
            metavar="CHOICE",
            help="Categorical fields that modulate numbers in field-aware methods: smallest (of cardinality), ranked "
            "(`daes context` shows how), none, or names separated by commas.",
        ),
    ] = "smallest"
    num_context: Annotated[int, _number("--num-context", "Model", "How many fields smallest and ranked take.")] = 3
    reservoir_size: Annotated[
        int | None,
        _number("--reservoir-size", "Model", "Values that each feature's reservoir holds.", show_default="100000"),
    ] = None
    half_life: Annotated[
        float | None,
        option(
            "--half-life",
            panel="Model",
            metavar="ROWS",
            help="Forget: a value of that age is half as likely to be in the reservoir as a new one.",
        ),
    ] = None
    expiry: Annotated[int | None, _rows("--expiry", "Model", "Forget: drop values of that age from the reservoir.")] = (
        None
    )
    method_option: Annotated[
        list[str],
        option(
            "--method-option",
            panel="Model",
            metavar="NAME=VALUE",
            help="Any other option of the method, as num_meta=20; may be repeated.",
        ),
    ] = field(default_factory=list)
    backbone_option: Annotated[
        list[str],
        option(
            "--backbone-option",
            panel="Model",
            metavar="NAME=VALUE",
            help="Any other option of the backbone, as layers=2; may be repeated.",
        ),
    ] = field(default_factory=list)
    sample_rows: Annotated[
        int,
        _rows(
            "--sample-rows", "Model", "Rows at the start that table sizes, context and offline methods are found on."
        ),
    ] = 10_000

    def arguments(self) -> dict[str, Any]:
        """Arguments of `CTRModel.from_sample`, method and backbone apart."""
        estimator = {"half_life": self.half_life, "expiry": self.expiry}
        estimator = {name: value for name, value in estimator.items() if value is not None}
        embedding = {"reservoir_size": self.reservoir_size, "estimator_options": estimator or None}
        backbone = {
            "hidden": None if self.hidden is None else _widths(self.hidden),
            "dropout": self.dropout,
            "batch_norm": self.batch_norm,
        }
        return {
            "dim": self.dim,
            "l2": self.l2,
            "context": _context(self.context),
            "num_context": self.num_context,
            "categorical_options": {"mode": self.tables, "sparse": self.sparse},
            "embedding_options": _given(embedding) | _pairs("--method-option", self.method_option),
            "backbone_options": _given(backbone) | _pairs("--backbone-option", self.backbone_option),
            **({} if self.table_size is None else {"sizes": self.table_size}),
        }


@dataclass(frozen=True)
class TrainingOptions:
    """How to learn, seeds apart."""

    batch_size: Annotated[int, _rows("--batch-size", "Training", "Rows a step.")] = 8192
    optimizer: Annotated[
        str, option("--optimizer", panel="Training", metavar="NAME", help="adam, adamw, adagrad or sgd.")
    ] = "adam"
    learning_rate: Annotated[
        float, option("--learning-rate", "--lr", panel="Training", help="Step size of the optimiser.")
    ] = 1e-3
    clip_norm: Annotated[
        float | None,
        option("--clip-norm", panel="Training", help="Scale gradients of a larger norm down to it."),
    ] = None
    max_norm: Annotated[
        float | None,
        option("--max-norm", panel="Training", help="A gradient of a larger norm makes its batch a bad one."),
    ] = None
    bad_batch: Annotated[
        str,
        option(
            "--bad-batch",
            panel="Training",
            metavar="POLICY",
            help="A batch that cannot be learned from (a label that is neither 0 nor 1, a loss that is not finite): "
            "stop, or skip it and report its row.",
        ),
    ] = "stop"
    label_delay: Annotated[
        int,
        _number("--label-delay", "Training", "Batches between scoring a row and learning its label.", least=0),
    ] = 0
    window: Annotated[
        int | None,
        _rows(
            "--window",
            "Training",
            "Rows of the window of the window metrics.",
            show_default="a tenth of the rows, 100000 at most",
        ),
    ] = None
    amp: Annotated[bool, option("--amp", panel="Training", help="Compute in bfloat16 where that is safe.")] = False
    device: Annotated[
        str,
        option(
            "--device", panel="Training", metavar="NAME", help="cpu, cuda, cuda:1, … or auto: cuda where there is one."
        ),
    ] = "auto"

    def config(self, data: "Data", **more: Any) -> "TrainConfig":
        """How to train on this stream."""
        from daes.training.config import TrainConfig

        rows = data.num_rows
        fitting = 100_000 if rows is None else min(max(rows // 10, 1000), 100_000)

        return TrainConfig(
            batch_size=self.batch_size,
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            clip_norm=self.clip_norm,
            max_norm=self.max_norm,
            bad_batch=self.bad_batch,  # type: ignore[arg-type]
            label_delay=self.label_delay,
            window=self.window or fitting,
            amp=self.amp,
            **more,
        )


def find_device(name: str) -> str:
    """The device by its name, once it is known to be there."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"--device must be auto, cpu, cuda or cuda:N, however: {name}") from None
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"--device must be auto, cpu, cuda or cuda:N, however: {name}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"--device {name} is not there: torch sees {torch.cuda.device_count()} CUDA devices")
    return name


def _context(choice: str) -> str | list[str] | None:
    if choice in ("smallest", "ranked"):
        return choice
    return None if choice == "none" else list(names(choice))


def _widths(given: Sequence[str]) -> list[int]:
    parse: Callable[[str], int] = whole_number(1)
    return [] if list(given) == ["none"] else [parse(width) for width in given]


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _pairs(flag: str, given: Sequence[str]) -> dict[str, Any]:
    """Options as NAME=VALUE: numbers, true, false, none and lists as TOML has them, anything else is text."""
    options: dict[str, Any] = {}
    for pair in given:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise ValueError(f"{flag} must be NAME=VALUE, however: {pair}")
        try:
            options[name.strip()] = None if text == "none" else tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            options[name.strip()] = text
    return options
