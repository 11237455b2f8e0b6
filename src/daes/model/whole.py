"""Which models compiled loops compute as a whole: to score with a frozen model, and to learn on the CPU."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from daes import native
from daes.backbone import Backbone
from daes.backbone.layers import unchanged
from daes.embedding import DAES, CategoricalEmbedding
from daes.embedding.interpolation import blend_rows
from daes.evidence import EvidenceInputs
from daes.model.ctr_model import CTRModel
from daes.native.evidence import Counts, Found
from daes.native.gradients import Gradients
from daes.native.network import Network
from daes.native.whole import LEARNED, Scores
from daes.stream.schema import Schema

_LOSS = CTRModel.cross_entropy
"""The loss that compiled loops know."""


def whole_scores(model: CTRModel) -> Scores | None:
    """The logits of a frozen model, of a few rows by one call, if its parts are those of the default."""
    parts = _parts(model)
    if parts is None:
        return None
    (layers, *_, crosses), values, counts = parts
    assert isinstance(model.numerical, DAES)
    values["table"] = blend_rows(values["table"].detach(), model.numerical.basis)
    values |= {"M": values["table"].shape[1] - 1, "recent": None}
    given = layers, values, counts, crosses
    return Scores(*given) if Scores.serves(*given) else None


class WholeModel:
    """The loss of a model and its gradients, without autograd, if its parts are those of the default.

    Args:
        model: the model, whose categorical table has sparse gradients.
    """

    def __init__(self, model: CTRModel) -> None:
        self._model = model
        self._gradients: Gradients | None = None
        self._state: Any = None
        self._members: list[tuple[dict[str, Any], str, Any]] = []
        self._learned: list[Any] = []

    @property
    def fits(self) -> bool:
        """Whether the model's parts are those of the default."""
        return self._find()[0] is not None

    def norm(self) -> float | None:
        """That of the gradients of the last batch, if it was differentiated here."""
        return None if self._gradients is None else self._gradients.norm()

    @property
    def found(self) -> Found | None:
        """Where the last batch was looked up, if it was differentiated here."""
        return None if self._gradients is None else self._gradients.found

    @torch.no_grad()
    def logits(self, numerical: Tensor, categorical: Tensor, *, correcting: bool = True) -> Tensor | None:
        """The logits of rows (B,), `CTRModel.correction` included if correcting; None where the model does not fit."""
        self._gradients = self._fitting(numerical, categorical)
        if self._gradients is None:
            return None
        return self._gradients.forward(numerical, categorical, correcting=correcting)

    @torch.no_grad()
    def __call__(
        self,
        numerical: Tensor,
        categorical: Tensor,
        label: Tensor,
        weight: Tensor | None = None,
        *,
        correcting: bool = True,
    ) -> tuple[Tensor, Tensor] | None:
        """Write the gradients of the mean cross-entropy; the loss and the logits. None where the model does not fit."""
        logits = self.logits(numerical, categorical, correcting=correcting)
        if logits is None or self._gradients is None:
            return None
        if label.shape != logits.shape or (weight is not None and weight.shape != logits.shape):
            return None
        label, weight = label.to(logits).contiguous(), None if weight is None else weight.to(logits).contiguous()
        error = torch.sigmoid(logits).sub_(label)
        if weight is None:
            error.div_(len(error))
        else:
            error.mul_(weight / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny))
        self._gradients.backward(error)
        return torch.tensor(native.cross_entropy(logits, label, weight)), logits

    def _fitting(self, numerical: Tensor, categorical: Tensor) -> Gradients | None:
        if not native.serves(numerical, categorical) or not _fit(self._model.schema, numerical, categorical):
            return None
        if torch.is_inference_mode_enabled() or torch.is_autocast_enabled("cpu"):
            return None
        # The number is that of the next hook of whatever module or tensor.
        state = self._model.training, RemovableHandle.next_id, self._model.cross_entropy
        if self._gradients is not None and state == self._state and self._is_current(self._gradients):
            return self._gradients
        self._state = state
        gradients, self._learned = self._find()
        self._members = _members(self._model) if gradients is not None else []
        return gradients

    def _find(self) -> tuple[Gradients | None, list[Any]]:
        """The model as compiled loops see it, if they serve, and all that is learned."""
        parts = _parts(self._model)
        numbers, table = self._model.numerical, self._model.categorical
        if parts is None or numbers.basis != "hat" or not table.sparse:  # type: ignore[union-attr]
            return None, []
        (layers, *_, crosses), values, counts = parts
        learned = [one for one in (*layers, *crosses, *(values[name] for name in LEARNED)) if one is not None]
        tied = len(set(map(id, learned))) < len(learned)
        own_loss = self._model.cross_entropy is not _LOSS
        if tied or own_loss or not all(_is_plain(one) for one in learned):
            return None, []
        given = layers, values, counts, crosses
        return (Gradients(*given) if Gradients.serves(*given) else None), learned

    def _is_current(self, gradients: Gradients) -> bool:
        """Whether the model still consists of the same tensors, at the same places, and all of them are learned."""
        for owner, name, one in self._members:
            if owner.get(name) is not one:
                return False
        same = gradients.is_current and self._model.evidence.counts() is gradients.counts
        return same and all(one.requires_grad for one in self._learned)


def _fit(schema: Schema, numerical: Tensor, categorical: Tensor) -> bool:
    """Whether rows, at least one, are of the types and shapes that compiled loops take for granted."""
    rows = len(categorical)
    return (
        rows > 0
        and (numerical.dtype, categorical.dtype) == (torch.float32, torch.int64)
        and numerical.shape == (rows, schema.num_numerical)
        and categorical.shape == (rows, schema.num_categorical)
    )


def _members(model: CTRModel) -> list[tuple[dict[str, Any], str, Any]]:
    """All parameters, buffers and modules of a model, each with where it is registered and by what name."""
    return [
        (owner, name, one)
        for module in model.modules()
        for owner in (module._parameters, module._buffers, module._modules)
        for name, one in owner.items()
    ]


def _is_plain(parameter: Any) -> bool:
    """Whether a float32 parameter is learned, and no hook reads its gradient."""
    watched = parameter._backward_hooks or parameter._post_accumulate_grad_hooks
    return parameter.requires_grad and parameter.dtype == torch.float32 and not watched


def _parts(model: CTRModel) -> tuple[Network, dict[str, Any], Counts] | None:
    """A model's network and the other fields of `whole_model` in C; None unless its parts are the default's.

    These are: DAES without a context, hashed tables, evidence, and a backbone that has a `network`.
    """
    numbers: Any = model.numerical
    table: Any = model.categorical
    counted = model.evidence
    if not (unchanged(model, CTRModel) and unchanged(numbers, DAES) and unchanged(table, CategoricalEmbedding)):
        return None
    if not (unchanged(counted, EvidenceInputs) and native.serves() and isinstance(model.backbone, Backbone)):
        return None
    network = model.backbone.network()
    if network is None or numbers.value_space or numbers.uses_context or numbers.linear not in (None, "value"):
        return None
    plain = model.backbone.plain_dim - counted.dim
    if table.vocabulary is not None or (plain and numbers.plain != ("score", "value")):
        return None
    counts = counted.counts()
    if counts is None or table.num_rows > counted.table_rows:  # as a table that was put there later may be
        return None
    known, recent, meta = numbers.distributions, counted.recent, numbers.meta_embeddings
    assert known is not None
    values = {
        "q": numbers.num_features,
        "p": table.num_fields,
        "d": model.dim,
        "K": known.num_knots,
        "M": meta.shape[1] - 1,
        "plain": plain,
        "knots": known.knots,
        "centre": known.centre,
        "scale": known.scale,
        "table": meta,
        "linear": None if numbers.linear is None else numbers.linear_weight,
        "missing": numbers.missing,
        "rows": table.weight,
        "first_order": network.linear,
        "pairs": network.pairs,
        "slope": network.slope,
        "evidence": counted.weight,
        "recent": None if recent is None else recent.weight,
        "combined": None if counted.combinations is None else counted.combinations.weight,
        "sizes": table._sizes,
        "offsets": table._offsets,
    }
    return network, values, counts
