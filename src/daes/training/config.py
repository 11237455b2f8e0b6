"""The configuration of training: one typed dataclass, validated once."""

from dataclasses import dataclass
from numbers import Integral
from typing import Literal

from daes.choices import not_one_of

LEARNING_RATES = {"adagrad": 0.03, "adam": 1e-3, "adamw": 1e-3, "sgd": 0.03}
"""The default step size of each optimiser."""
FEW_STEPS = 200
"""A model with fewer steps has hardly begun to learn."""
OVERFLOW = ("no-click", "drop", "spill")
"""What to do when too many rows wait for their labels; see `LateLabels`."""


@dataclass(frozen=True)
class TrainConfig:
    """How to train.

    The defaults are for one pass over a stream: Adagrad, which takes large steps for rarely seen values, and small
    batches, since every step is another chance to learn (docs/why.md shows what each is worth).

    Args:
        batch_size: rows per step; `suggest_batch_size` suggests one for a number of rows.
        optimizer: "adagrad", "adam", "adamw" or "sgd".
        learning_rate: the step size; None for the optimiser's in `LEARNING_RATES`.
        table_start: Adagrad's sums of tables, of ids or of bins, start at (this / batch size)², as if each row had
            already had that gradient once. From 0 the first step of a row would have full length, and an id seen twice
            would be memorised.
        clip_norm: gradients of a larger norm are scaled down to it; None for no clipping.
        max_norm: a batch whose gradient has a larger norm is a bad batch; None for no limit other than a finite norm.
        amp: compute in bfloat16 where that is safe.
        cuda_graphs: on a CUDA device, record the step on a full batch once and replay it (`daes.training.graphs`); a
            model that cannot be recorded is trained as usual.
        label_delay: number of batches between scoring a row and learning its label.
        window: rows in the window of the metrics.
        bad_batch: what to do with a batch whose values are invalid or whose loss, scores or gradient are not finite:
            "stop" the run, or "skip" the batch and report it.
        record_every: rows between two records of the history; None for an eighth of the window, less at the start and
            more on long streams, so that there are at most 400 records.
        checkpoint_every: rows between two checkpoints.
        checkpoint_minutes: a checkpoint is due after this many minutes, regardless of the number of rows.
        sync_every: with several processes, the largest number of rows between two exchanges of their scores; there are
            fewer while the stream is short, or steps are no longer than the half-life of recent errors.
        seed: seed of torch's random numbers (dropout).

    >>> TrainConfig(batch_size=0)
    Traceback (most recent call last):
    ValueError: batch_size must be positive, got 0
    """

    batch_size: int = 128
    optimizer: str = "adagrad"
    learning_rate: float | None = None
    table_start: float = 0.2
    clip_norm: float | None = None
    max_norm: float | None = None
    amp: bool = False
    cuda_graphs: bool = True
    label_delay: int = 0
    window: int = 100_000
    bad_batch: Literal["stop", "skip"] = "stop"
    record_every: int | None = None
    checkpoint_every: int = 1_000_000
    checkpoint_minutes: float = 5.0
    sync_every: int = 20_000
    seed: int = 0

    def __post_init__(self) -> None:
        whole = {name: getattr(self, name) for name in ("batch_size", "label_delay", "window", "sync_every", "seed")}
        problems = [
            f"{name} must be an integer, got {it!r}"
            for name, it in whole.items()
            if not isinstance(it, Integral | None)
        ]
        if problems:
            raise ValueError("; ".join(problems))
        if self.optimizer not in LEARNING_RATES:
            problems.append(f"optimizer {not_one_of(self.optimizer, LEARNING_RATES)}")
        needed = ("batch_size", "window", "checkpoint_every", "checkpoint_minutes", "sync_every")
        for name in (*needed, "record_every", "learning_rate", "clip_norm", "max_norm"):
            value = getattr(self, name)
            if (value is None and name in needed) or (value is not None and not value > 0):
                problems.append(f"{name} must be positive, got {value}")
        for name in ("table_start", "label_delay", "seed"):
            value = getattr(self, name)
            if value is None or not value >= 0:
                problems.append(f"{name} must not be negative, got {value}")
        if self.bad_batch not in ("stop", "skip"):
            problems.append(f"bad_batch must be 'stop' or 'skip', got {self.bad_batch!r}")
        if problems:
            raise ValueError("; ".join(problems))

    @property
    def rate(self) -> float:
        """The step size: `learning_rate`, or the optimiser's default."""
        return LEARNING_RATES[self.optimizer] if self.learning_rate is None else self.learning_rate


def suggest_batch_size(rows: int | None) -> int:
    """The default number of rows per step: as few as their cost allows, a power of two from 8 to 1,024.

    A model that has taken few steps has learned little, whatever the number of rows.

    >>> [suggest_batch_size(rows) for rows in (200, 5_000, 40_000, 140_000, 10_000_000, None)]
    [8, 16, 16, 32, 1024, 128]
    """
    if rows is None:
        return 128
    wanted = max(rows // 3000, min(rows // 200, 16))
    return 1 << min(max(wanted.bit_length() - 1, 3), 10)


def suggest_more_steps(rows: int, steps: int, batch_size: int) -> int | None:
    """A smaller number of rows per step for a run of few steps; None if it took enough or there is no smaller one.

    >>> suggest_more_steps(300, steps=3, batch_size=100), suggest_more_steps(300, steps=38, batch_size=8)
    (8, None)
    """
    smaller = suggest_batch_size(rows)
    return smaller if steps < FEW_STEPS and smaller < batch_size else None
