"""The end of a step on a device, divided into what the host does ahead and what the device does, which can be recorded.

After the optimiser's step the model observes the batch and counts its labels. Which values a sample accepts and when
knots are refreshed depends only on the number of rows, so the host knows it ahead and the device need not wait for it.
"""

from dataclasses import dataclass

from torch import Tensor

from daes.embedding import NumericalEmbedding, kernels
from daes.model import CTRModel


@dataclass(frozen=True)
class Plan:
    """What the device does with a batch: observe it, refresh the knots, count its labels."""

    observe: bool = False
    refresh: bool = False
    count: bool = False


def plan(model: CTRModel, rows: int, *, observing: bool) -> Plan | None:
    """Do the host's part of observing and counting the next rows; returns what the device has to do.

    Does nothing and returns None if the evidence needs the host, which is too rare to be worth a recording.
    """
    # A vocabulary observes the batch first, on the host: an id that gets a row by it is counted in that row.
    count = model.evidence.can_count_ahead and not (observing and _has_vocabulary(model))
    if count and model.evidence.due(rows):
        return None
    refresh = False
    observe = observing and _observes_ahead(model)
    if observe:
        assert model.distributions is not None
        refresh = model.distributions.advance(rows)
    if count:
        model.evidence.advance(rows)
    return Plan(observe, refresh, count)


def take_in(
    model: CTRModel, what: Plan, numerical: Tensor, categorical: Tensor, label: Tensor, logits: Tensor | None = None
) -> None:
    """Do the device's part; without logits no errors are recorded."""
    if what.observe:
        assert model.distributions is not None
        model.distributions.observe_ahead(numerical, refresh=what.refresh)
    if what.count:
        model.evidence.count_ahead(numerical, model.rows(categorical), label, logits)


def _observes_ahead(model: CTRModel) -> bool:
    """Whether nothing but distributions observes a batch, they do it by kernels, and their samples are full."""
    method, known = model.numerical, model.distributions
    return (
        method is not None
        and method.observe_in_forward
        and type(method)._observe is NumericalEmbedding._observe
        and not _has_vocabulary(model)
        and known is not None
        and kernels.usable(known.slots)
        and known.rows_seen >= known.reservoir_size
    )


def _has_vocabulary(model: CTRModel) -> bool:
    return model.categorical is not None and model.categorical.vocabulary is not None
