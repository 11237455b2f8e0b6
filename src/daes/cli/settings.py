"""The options of the model, of its training and of the protocol of comparisons."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from daes.cli.groups import flag
from daes.cli.options import DEVICE, PAIR, Kind, Names, number, one_of, option_field, parse_names, whole_number
from daes.training.config import LEARNING_RATES, TrainConfig, suggest_batch_size
from daes.training.environment import find_device

if TYPE_CHECKING:
    from daes.stream.dataset import Dataset
    from daes.training.offline import OfflineConfig


_SMALL_BYTES = 1 << 26


def widths(given: str | Sequence[str]) -> Names:
    """Parse the widths of layers.

    >>> widths("128, 32"), widths("none")
    (('128', '32'), ())
    """
    listed = parse_names(given)
    return Names(() if listed == ("none",) else (str(whole_number(1).parse(width)) for width in listed))


def shares(given: str | Sequence[str]) -> Names:
    """Parse the shares of training, validation and test."""
    parts = parse_names(given)
    if len(parts) != 3:
        raise typer.BadParameter(f"three numbers are needed, got {','.join(parts)}")
    return Names(str(number(above=0, below=1).parse(part)) for part in parts)


_model = partial(option_field, panel="Model")
_training = partial(option_field, panel="Training")
_protocol = partial(option_field, panel="Protocol")
protocol_field = partial(
    option_field,
    "stream: one pass, each row scored before it is learned from. paper: chronological training, validation and test "
    "parts, several epochs.",
    default="stream",
    of=one_of("stream", "paper"),
)


@dataclass(frozen=True)
class ModelOptions:
    """Options of the model, except method and backbone."""

    dim: int = _model("Dimension of every embedding.", default=16, of=whole_number(1))
    hidden: Names | None = _model(
        "Widths of the MLP's hidden layers, or none.", of=Kind(widths, "LIST"), show_default="128,32,8"
    )
    dropout: float | None = _model(
        "Dropout rate of the hidden layers.", of=number(least=0, below=1, metavar="SHARE"), show_default="0"
    )
    batch_norm: bool | None = _model("Normalise hidden layers.", show_default="no-batch-norm")
    evidence: bool = _model("Give the network what past clicks say about each value and id, by counting.", default=True)
    pairs: int = _model(
        "Pairs of fields by whose values the model's errors are corrected.", default=32, of=whole_number(0)
    )
    triples: int = _model("Triples of such fields.", default=32, of=whole_number(0))
    recent: float = _model(
        "Half-life of the model's recent errors, which correct its next scores; a tenth of it is used as well. 0 "
        "turns this off.",
        default=300.0,
        of=number(least=0, metavar="ROWS"),
    )
    l2: float = _model("λ of the paper's loss, cross-entropy + λ‖Θ‖².", default=0.0, of=number(least=0))
    tables: str = _model(
        "How a category is mapped to a row of its table: hash, or vocabulary (learned from the stream).",
        default="hash",
        of=one_of("hash", "vocabulary", metavar="MODE"),
    )
    table_size: int | None = _model(
        "Rows of each category's table.", of=whole_number(1), show_default="by the cardinalities in the sample"
    )
    sparse: bool = _model("Sparse gradients, for very large tables; excludes --l2.", "--sparse", default=False)
    context: str = _model(
        "Categorical fields that modulate numbers in field-aware methods: smallest (cardinality), ranked "
        "(`daes context` shows how), none, or names separated by commas.",
        default="smallest",
        metavar="CHOICE",
    )
    num_context: int = _model("Number of fields that smallest and ranked choose.", default=3, of=whole_number(1))
    reservoir_size: int | None = _model(
        "Values that each feature's reservoir keeps.", of=whole_number(1), show_default="100000"
    )
    half_life: float | None = _model(
        "Decay: a value of this age is half as likely to be in the reservoir as a new one.",
        of=number(above=0, metavar="ROWS"),
    )
    expiry: int | None = _model("Drop values of this age from the reservoir.", of=whole_number(1, "ROWS"))
    method_option: list[str] = _model(
        "Any other option of the method, such as num_meta=20; may be repeated.", default=[], of=PAIR
    )
    backbone_option: list[str] = _model(
        "Any other option of the backbone, such as layers=2; may be repeated.", default=[], of=PAIR
    )
    sample_rows: int = _model(
        "Rows at the start on which table sizes, context and offline methods are fitted.",
        default=10_000,
        of=whole_number(1, "ROWS"),
    )

    def __post_init__(self) -> None:
        for name in ("pairs", "triples", "recent"):
            if not self.evidence and getattr(self, name) not in (0, getattr(ModelOptions, name)):
                raise ValueError(f"--{name} is an option of evidence: it cannot be used with --no-evidence")

    def check_method(self, method: str) -> None:
        """Raise an error for an option that has no effect with this method."""
        sampling = [name for name in ("reservoir_size", "half_life", "expiry") if getattr(self, name) is not None]
        if not sampling and self.context in ("smallest", "none"):
            return
        from daes.embedding import build_embedding

        built = build_embedding(method, 1, 1, **self.arguments()["embedding_options"])
        if sampling and built.distributions is None:
            raise ValueError(f"{flag(sampling[0])} has no effect with {method}, which keeps no sample of the numbers")
        if self.context not in ("smallest", "none") and not built.uses_context:
            raise ValueError(f"--context has no effect with {method}, which is not field-aware, got {self.context}")

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

    batch_size: int | None = _training(
        "Rows per step.", of=whole_number(1, "ROWS"), show_default="by the number of rows, 8 to 1024"
    )
    optimizer: str = _training(f"One of {', '.join(LEARNING_RATES)}.", default="adagrad", of=one_of(*LEARNING_RATES))
    learning_rate: float | None = _training(
        "Step size of the optimiser.",
        "--learning-rate",
        "--lr",
        of=number(above=0),
        show_default="0.03 for adagrad, 0.001 for adam",
    )
    clip_norm: float | None = _training("Scale gradients with a larger norm down to it.", of=number(above=0))
    max_norm: float | None = _training("A batch whose gradient has a larger norm is a bad batch.", of=number(above=0))
    bad_batch: str = _training(
        "A batch that cannot be learned from (a label that is neither 0 nor 1, a loss that is not finite): "
        "stop, or skip it and report its row.",
        default="stop",
        of=one_of("stop", "skip", metavar="POLICY"),
    )
    label_delay: int = _training("Batches between scoring a row and learning its label.", default=0, of=whole_number(0))
    window: int | None = _training(
        "Rows of the window metrics.", of=whole_number(1, "ROWS"), show_default="a tenth of the rows, 100000 at most"
    )
    amp: bool = _training("Compute in bfloat16 where it is safe.", "--amp", default=False)
    cuda_graphs: bool = _training("On a CUDA device, record a step once and replay it.", default=True)
    sync_every: int = _training(
        "With several processes (torchrun): maximum number of rows between two exchanges of what was learned; "
        "fewer at the start of the stream, and with small steps.",
        default=20_000,
        of=whole_number(1, "ROWS"),
    )
    device: str = _training("cpu, cuda, cuda:1, … or auto: cuda if there is one.", default="auto", of=DEVICE)

    def resolved(self, data: "Dataset") -> "TrainingOptions":
        """The same options with batch size, window and device chosen by the number of rows and the hardware."""
        rows = _count(data) if self.window is None or self.batch_size is None else None
        batch_size = suggest_batch_size(rows) if self.batch_size is None else self.batch_size
        window = self.window or (100_000 if rows is None else min(max(rows // 10, 1000), 100_000))
        return replace(self, batch_size=batch_size, window=window, device=find_device(self.device))

    def config(self, **more: Any) -> TrainConfig:
        """The training configuration; the options must be resolved."""
        options = {name: value for name, value in vars(self).items() if name != "device"}
        return TrainConfig(**options, **more)


@dataclass(frozen=True)
class ProtocolOptions:
    """How the methods are judged."""

    protocol: str = protocol_field(panel="Protocol")
    split: Names = _protocol(
        "Shares of training, validation and test (paper).",
        default=Names(("0.8", "0.1", "0.1")),
        of=Kind(shares, "LIST"),
    )
    epochs: int = _protocol("Maximum number of epochs (paper).", default=50, of=whole_number(1))
    patience: int = _protocol(
        "Epochs without a lower validation LogLoss that end the training (paper).", default=5, of=whole_number(1)
    )
    shuffle: bool = _protocol("Shuffle the training part in each epoch (paper).", "--shuffle", default=False)

    def __post_init__(self) -> None:
        for name in ("split", "epochs", "patience", "shuffle"):
            if self.protocol != "paper" and getattr(self, name) != getattr(ProtocolOptions, name):
                raise ValueError(f"--{name} is an option of --protocol paper, got --protocol {self.protocol}")

    def config(self) -> "OfflineConfig":
        """The configuration of the paper's protocol."""
        from daes.training.offline import OfflineConfig

        return OfflineConfig(
            split=tuple(map(float, self.split)),  # type: ignore[arg-type]
            epochs=self.epochs,
            patience=self.patience,
            shuffle=self.shuffle,
        )


def _count(data: "Dataset") -> int | None:
    """The number of rows; None if large files would have to be read to count them."""
    sizes = [size for _, size, _ in data.stamps() or []]
    return data.count_rows() if data.num_rows is None and sizes and sum(sizes) < _SMALL_BYTES else data.num_rows


def _context(choice: str) -> str | list[str] | None:
    if choice in ("smallest", "ranked"):
        return choice
    return None if choice == "none" else list(parse_names(choice))


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
