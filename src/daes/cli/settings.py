"""The options of the model and of its training."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from daes.cli.options import DEVICE, PAIR, Kind, Names, names, number, one_of, option, whole_number
from daes.training.config import LEARNING_RATES, suggest_batch_size
from daes.training.environment import find_device

if TYPE_CHECKING:
    from daes.stream.dataset import Dataset
    from daes.training.config import TrainConfig


_SMALL_BYTES = 1 << 26


def widths(given: str | Sequence[str]) -> Names:
    """Parse the widths of layers.

    >>> widths("128, 32"), widths("none")
    (('128', '32'), ())
    """
    listed = names(given)
    return Names(() if listed == ("none",) else (str(whole_number(1).parse(width)) for width in listed))


_model = partial(option, panel="Model")
_training = partial(option, panel="Training")


@dataclass(frozen=True)
class ModelOptions:
    """Options of the model, except method and backbone."""

    dim: Annotated[int, _model("Dimension of every embedding.", of=whole_number(1))] = 16
    hidden: Annotated[
        Names | None,
        _model("Widths of the MLP's hidden layers, or none.", of=Kind(widths, "LIST"), show_default="128,32,8"),
    ] = None
    dropout: Annotated[
        float | None,
        _model("Dropout rate of the hidden layers.", of=number(least=0, below=1, metavar="SHARE"), show_default="0"),
    ] = None
    batch_norm: Annotated[bool | None, _model("Normalise hidden layers.", show_default="no-batch-norm")] = None
    evidence: Annotated[bool, _model("Give the network what past clicks say about each value and id, by counting.")] = (
        True
    )
    pairs: Annotated[
        int, _model("Pairs of fields by whose values the model's errors are corrected.", of=whole_number(0))
    ] = 32
    triples: Annotated[int, _model("Triples of such fields.", of=whole_number(0))] = 32
    recent: Annotated[
        float,
        _model(
            "Half-life of the model's recent errors, which correct its next scores; a tenth of it is used as well. 0 "
            "turns this off.",
            of=number(least=0, metavar="ROWS"),
        ),
    ] = 300.0
    l2: Annotated[float, _model("λ of the paper's loss, cross-entropy + λ‖Θ‖².", of=number(least=0))] = 0.0
    tables: Annotated[
        str,
        _model(
            "How a category is mapped to a row of its table: hash, or vocabulary (learned from the stream).",
            of=one_of("hash", "vocabulary", metavar="MODE"),
        ),
    ] = "hash"
    table_size: Annotated[
        int | None,
        _model("Rows of each category's table.", of=whole_number(1), show_default="by the cardinalities in the sample"),
    ] = None
    sparse: Annotated[bool, _model("Sparse gradients, for very large tables; excludes --l2.", "--sparse")] = False
    context: Annotated[
        str,
        _model(
            "Categorical fields that modulate numbers in field-aware methods: smallest (cardinality), ranked "
            "(`daes context` shows how), none, or names separated by commas.",
            metavar="CHOICE",
        ),
    ] = "smallest"
    num_context: Annotated[int, _model("Number of fields that smallest and ranked choose.", of=whole_number(1))] = 3
    reservoir_size: Annotated[
        int | None,
        _model("Values that each feature's reservoir keeps.", of=whole_number(1), show_default="100000"),
    ] = None
    half_life: Annotated[
        float | None,
        _model(
            "Decay: a value of this age is half as likely to be in the reservoir as a new one.",
            of=number(above=0, metavar="ROWS"),
        ),
    ] = None
    expiry: Annotated[int | None, _model("Drop values of this age from the reservoir.", of=whole_number(1, "ROWS"))] = (
        None
    )
    method_option: Annotated[
        list[str], _model("Any other option of the method, such as num_meta=20; may be repeated.", of=PAIR)
    ] = field(default_factory=list)
    backbone_option: Annotated[
        list[str], _model("Any other option of the backbone, such as layers=2; may be repeated.", of=PAIR)
    ] = field(default_factory=list)
    sample_rows: Annotated[
        int,
        _model(
            "Rows at the start on which table sizes, context and offline methods are fitted.",
            of=whole_number(1, "ROWS"),
        ),
    ] = 10_000

    def __post_init__(self) -> None:
        for name in ("pairs", "triples", "recent"):
            if not self.evidence and getattr(self, name) not in (0, getattr(ModelOptions, name)):
                raise ValueError(f"--{name} is an option of evidence: it cannot be used with --no-evidence")

    def arguments(self) -> dict[str, Any]:
        """Arguments of `CTRModel.from_sample`, except method and backbone."""
        estimator = given_options({"half_life": self.half_life, "expiry": self.expiry})
        embedding = {"reservoir_size": self.reservoir_size, "estimator_options": estimator or None}
        evidence = {"pairs": self.pairs, "triples": self.triples, "recent": self.recent or None}
        backbone = {
            "hidden": None if self.hidden is None else [int(width) for width in self.hidden],
            "dropout": self.dropout,
            "batch_norm": self.batch_norm,
        }
        return {
            "dim": self.dim,
            "l2": self.l2,
            "context": _context(self.context),
            "evidence": evidence if self.evidence else False,
            "num_context": self.num_context,
            "categorical_options": {"mode": self.tables, "sparse": self.sparse},
            "embedding_options": given_options(embedding) | _values(self.method_option),
            "backbone_options": given_options(backbone) | _values(self.backbone_option),
            **({} if self.table_size is None else {"sizes": self.table_size}),
        }


@dataclass(frozen=True)
class TrainingOptions:
    """Options of training, except seeds."""

    batch_size: Annotated[
        int | None,
        _training("Rows per step.", of=whole_number(1, "ROWS"), show_default="by the number of rows, 8 to 1024"),
    ] = None
    optimizer: Annotated[str, _training(f"One of {', '.join(LEARNING_RATES)}.", of=one_of(*LEARNING_RATES))] = "adagrad"
    learning_rate: Annotated[
        float | None,
        _training(
            "Step size of the optimiser.",
            "--learning-rate",
            "--lr",
            of=number(above=0),
            show_default="0.03 for adagrad, 0.001 for adam",
        ),
    ] = None
    clip_norm: Annotated[
        float | None,
        _training("Scale gradients with a larger norm down to it.", of=number(above=0)),
    ] = None
    max_norm: Annotated[
        float | None,
        _training("A batch whose gradient has a larger norm is a bad batch.", of=number(above=0)),
    ] = None
    bad_batch: Annotated[
        str,
        _training(
            "A batch that cannot be learned from (a label that is neither 0 nor 1, a loss that is not finite): "
            "stop, or skip it and report its row.",
            of=one_of("stop", "skip", metavar="POLICY"),
        ),
    ] = "stop"
    label_delay: Annotated[
        int, _training("Batches between scoring a row and learning its label.", of=whole_number(0))
    ] = 0
    window: Annotated[
        int | None,
        _training(
            "Rows of the window metrics.",
            of=whole_number(1, "ROWS"),
            show_default="a tenth of the rows, 100000 at most",
        ),
    ] = None
    amp: Annotated[bool, _training("Compute in bfloat16 where it is safe.", "--amp")] = False
    cuda_graphs: Annotated[bool, _training("On a CUDA device, record a step once and replay it.")] = True
    sync_every: Annotated[
        int,
        _training(
            "With several processes (torchrun): maximum number of rows between two exchanges of what was learned; "
            "fewer at the start of the stream.",
            of=whole_number(1, "ROWS"),
        ),
    ] = 20_000
    device: Annotated[str, _training("cpu, cuda, cuda:1, … or auto: cuda if there is one.", of=DEVICE)] = "auto"

    def resolved(self, data: "Dataset") -> "TrainingOptions":
        """The same options with batch size, window and device chosen by the number of rows and the hardware."""
        rows = _count(data) if self.window is None or self.batch_size is None else None
        batch_size = suggest_batch_size(rows) if self.batch_size is None else self.batch_size
        window = self.window or (100_000 if rows is None else min(max(rows // 10, 1000), 100_000))
        return replace(self, batch_size=batch_size, window=window, device=find_device(self.device))

    def config(self, **more: Any) -> "TrainConfig":
        """The training configuration; the options must be resolved."""
        from daes.training.config import TrainConfig

        options = {name: value for name, value in vars(self).items() if name != "device"}
        return TrainConfig(**options, **more)


def _count(data: "Dataset") -> int | None:
    """The number of rows; None if large files would have to be read to count them."""
    sizes = [size for _, size, _ in data.stamps() or []]
    return data.count_rows() if data.num_rows is None and sizes and sum(sizes) < _SMALL_BYTES else data.num_rows


def _context(choice: str) -> str | list[str] | None:
    if choice in ("smallest", "ranked"):
        return choice
    return None if choice == "none" else list(names(choice))


def given_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def _values(pairs: Sequence[str]) -> dict[str, Any]:
    """Options given as NAME=VALUE. Numbers, true, false and lists are as in TOML, or none; anything else is text."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        try:
            options[name.strip()] = None if text == "none" else tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            options[name.strip()] = text
    return options
