"""DAES: distribution-aware end-to-end embedding for streaming numerical features."""

from collections.abc import Sequence
from typing import Any, Literal, Self, Unpack

import torch
from torch import Tensor

from daes import native
from daes.choices import check_choice
from daes.distribution.base import check_positive
from daes.embedding import kernels
from daes.embedding.base import Context, NumericalEmbedding, Outputs, SharedOptions
from daes.embedding.interpolation import Basis, basis_weights, blend, blend_rows, coordinate, thermometer, weighted_sum
from daes.embedding.knots import INPUTS, Bounds, FeatureInput, FeatureKnots
from daes.embedding.modulation import CONTEXT_POOLS, gate, pool_context, tran, tran_matrices
from daes.embedding.registry import register_method
from daes.registry import Reference

Modulation = Literal["gate", "tran"]

_SHARED: dict[str, Any] = {
    "family": "dynamic quantile",
    "reference": Reference(
        "Jiahao Liu et al.",
        "Distribution-Aware End-to-End Embedding for Streaming Numerical Features in Click-Through Rate Prediction",
        "arXiv",
        2026,
    ),
    "continuous": True,
    "distribution_aware": True,
}


@register_method(
    "daes-gate",
    title="DAES, gate, as published",
    short="DAES gate",
    preset={"modulation": "gate"},
    order=2,
    field_aware=True,
    **_SHARED,
)
@register_method(
    "daes-tran",
    title="DAES, tran, as published",
    short="DAES tran",
    preset={"modulation": "tran"},
    order=3,
    field_aware=True,
    **_SHARED,
)
@register_method(
    "daes",
    title="DAES, our preset",
    short="daes (our preset)",
    preset={"modulation": None, "basis": "hat", "knots": 100, "linear": "value", "plain": ["score", "value"]},
    order=4,
    note="field-aware too with `modulation=`.",
    **_SHARED,
)
class DAES(NumericalEmbedding):
    """A sum of meta-embeddings, weighted by the number's place in its distribution and, if modulated, by the context.

    1. A reservoir inside the module keeps a uniform sample of each feature's stream; `knots` are its quantiles.
    2. The rank p̂ of the value among the knots gives weights v on a basis of M (thermometer) or M+1 (hat) rows, see
       `daes.embedding.interpolation`.
    3. Categorical context e_f modulates them: w = β·(v ⊙ sigmoid(W e_f)) + (1−β)·v for "gate",
       w = β·sigmoid(reshape(W e_f) v) + (1−β)·v for "tran".
    4. e = Σ_i w_i E_i, plus a global linear term z·u with `linear`. With `plain` the network also gets such z directly,
       at unit scale, whereas vectors are small initially.

    The class defaults are the paper's (`daes-gate`; with `modulation="tran"`, `daes-tran`). The preset `daes` of
    `build_embedding` is recommended: the hat basis, fine knots, a linear term and plain inputs.

    **Shape.** values (B, q), context (B, c) or `Context`, c being `context_dim` → (B, q, d). Parameters:
    `meta_embeddings` (q, M, d) (M+1 rows for hat), `modulation_weight` (q, M, c) for gate and (q, M, M, c) for tran,
    `missing` (q, d), `linear_weight` (q, d). The statistics are those of `distributions`; `knots` is (q, K+1).

    Args:
        num_meta: number M of bins.
        basis: "thermometer" (the paper's) or "hat".
        knots: number K of intervals between knots; M by default (the paper's). A larger K resolves heavy tails.
        linear: None, or what z is: "value" (standardised, clamped to ±4), "score" (Φ⁻¹ of the rank) or "rank"
            (√12·(p̂ − ½)).
        bounds: a fixed pair (low, high), or one per feature, in place of the smallest and largest value seen.
        value_space: interpolate in value space instead, between `bounds` cut into M equal parts (the paper's ablation);
            ranks are then positions in that range.
        tolerance: how far a rank may lag behind the reservoir, see `FeatureDistributions`.
        modulation: "gate", "tran" or None. A call without a context is not modulated.
        beta: strength of the modulation, in [0, 1].
        context_pool: how the model combines several fields into one context vector: "mean", "sum" or "concat".
        num_context: number of context fields, which determines the width of the context with "concat".
        shared: options of all methods, see `NumericalEmbedding`: `plain`, `estimator`, `estimator_options`,
            `reservoir_size`, `seed`, `init_std`.

    >>> _ = torch.manual_seed(0)
    >>> embedding = DAES(num_features=2, dim=4)
    >>> values = torch.tensor([[1.0, 10.0], [2.0, torch.nan], [3.0, 30.0]])
    >>> embedding(values).shape
    torch.Size([3, 2, 4])
    >>> embedding.knots[:, [0, 5, 10]]
    tensor([[ 1.,  2.,  3.],
            [10., 10., 30.]])
    """

    distributions: FeatureKnots

    def __init__(
        self,
        num_features: int,
        dim: int = 16,
        *,
        num_meta: int = 10,
        basis: Basis = "thermometer",
        knots: int | None = None,
        linear: FeatureInput | None = None,
        bounds: Bounds | None = None,
        value_space: bool = False,
        tolerance: float = 1e-2,
        modulation: Modulation | None = "gate",
        beta: float = 0.5,
        context_pool: Literal["mean", "sum", "concat"] = "mean",
        num_context: int = 3,
        **shared: Unpack[SharedOptions],
    ) -> None:
        knots = num_meta if knots is None else knots
        check_positive(num_meta=num_meta, knots=knots, num_context=num_context)
        super().__init__(num_features, dim, num_knots=knots, bounds=bounds, tolerance=tolerance, **shared)
        check_choice("modulation", modulation, ("gate", "tran", None))
        check_choice("basis", basis, ("thermometer", "hat"))
        check_choice("linear", linear, (*INPUTS, None))
        check_choice("context_pool", context_pool, CONTEXT_POOLS)
        if not 0 <= beta <= 1:
            raise ValueError(f"beta must lie in [0, 1], got {beta}")
        self.num_meta = num_meta
        self.basis: Basis = basis
        self.linear = linear
        self.value_space = value_space
        self.modulation = modulation
        self.beta = beta
        self.context_pool = context_pool
        self.context_dim = dim * num_context if context_pool == "concat" else dim
        rows = num_meta if basis == "thermometer" else num_meta + 1
        self.meta_embeddings = self.new_table(num_features, rows, dim)
        if modulation is not None:
            square = (rows,) if modulation == "tran" else ()
            self.modulation_weight = self.new_table(num_features, rows, *square, self.context_dim)
        if linear is not None:
            self.linear_weight = self.new_table(num_features, dim)

    @classmethod
    def from_knots(cls, knots: Tensor, dim: int = 16, **options: Any) -> Self:
        """A DAES with fixed knots (q, K+1), which observes nothing and keeps their dtype.

        Centre and scale are those of the knots. At `modulation=None` or β = 0 this is PLE. A `CTRModel` with it is not
        saved by `save_pretrained`, which describes a method by its options; `state_dict` has the knots.
        """
        fixed = FeatureKnots(knots)
        made = cls(
            len(knots), dim, **{"num_meta": fixed.num_knots, **options, "knots": fixed.num_knots, "reservoir_size": 1}
        )
        made.distributions, made.is_described = fixed, False
        return made

    @property
    def knots(self) -> Tensor:
        """The knots of each feature, (q, K+1)."""
        return self.distributions.knots

    @property
    def uses_context(self) -> bool:
        return self.modulation is not None and self.beta > 0

    @property
    def reads_place(self) -> bool:
        return not self._by_thermometer or self.linear in ("score", "rank")

    @property
    def _by_thermometer(self) -> bool:
        """Whether the weights are computed from the values and the knots, without the places among them."""
        return self.basis == "thermometer" and self.distributions.num_knots == self.num_meta

    def pool(self, vectors: Tensor) -> Tensor:
        """The context vectors this module expects, (U, c), from the embeddings of the context fields, (U, n, d)."""
        return pool_context(vectors, self.context_pool)

    def encode(self, values: Tensor, place: Tensor | None, context: Tensor | Context | None) -> Tensor:
        modulated = context is not None and self.uses_context
        if torch.compiler.is_exporting() and place is not None and not modulated:
            known = self.distributions.known()[:, None, None].to(self.meta_embeddings.dtype)
            rows = blend_rows(self.meta_embeddings, self.basis) * known
            encoded = blend(place * (self.num_meta / self.distributions.num_knots), rows)
        else:
            weights = self._weights(values, place)
            if context is not None and modulated:
                modulate = gate if self.modulation == "gate" else tran
                weights = modulate(weights, context, self.modulation_weight, self.beta)
            encoded = weighted_sum(weights, self.meta_embeddings)
        if self.linear is not None:
            path = self.distributions.input(self.linear, values, place).to(encoded.dtype)
            encoded = encoded + path.unsqueeze(-1) * self.linear_weight
        return encoded

    def _fused(self, values: Tensor, context: Tensor | Context | None, plain: Sequence[FeatureInput]) -> Outputs | None:
        context = context if self.uses_context else None
        if context is not None:
            self._check_context(context, values.shape[0])
        if self._loop_serves(values, context, plain):
            return self._blend_by_loop(values, context, plain)
        vectors, index = context if isinstance(context, Context) else (None, None)
        own = context if isinstance(context, Tensor) else None  # a context for every row
        if (
            not kernels.usable(values, self.meta_embeddings, self.knots, vectors, own)
            or values.requires_grad
            or not kernels.fit(self.meta_embeddings)
            or (own is not None and self.modulation == "tran")
            or (own is not None and not kernels.fit_gate(self.modulation_weight, self.meta_embeddings))
        ):
            return None
        table, square = self.meta_embeddings.unsqueeze(0), None
        if vectors is not None and self.modulation == "gate":
            table = kernels.gate_tables(vectors, self.modulation_weight, self.meta_embeddings, self.beta)
        elif vectors is not None:
            square, table = tran_matrices(vectors, self.modulation_weight), table * (1.0 - self.beta)
        places = values, self.place_knots(), self.distributions
        fields, inputs = kernels.blend(
            *places,
            table,
            self.missing,
            bins=self.num_meta,
            index=index if square is None else None,
            gate=None if own is None else (own, self.modulation_weight, self.beta),
            linear=self.linear,
            linear_weight=self.linear_weight if self.linear is not None else None,
            plain=plain,
        )
        if square is not None:
            # A missing value has no weights: the sigmoid of −∞.
            none = self.missing.new_full((self.num_features, square.shape[-1]), -torch.inf)
            product, _ = kernels.blend(*places, square, none, bins=self.num_meta, index=index)
            fields = kernels.mix(product, self.meta_embeddings, fields, beta=self.beta, squash=True)
        return Outputs(fields, inputs if plain else None)

    def _loop_serves(self, values: Tensor, context: Tensor | Context | None, plain: Sequence[FeatureInput]) -> bool:
        """Whether there is a compiled loop for this: in single precision, without matrices per context."""
        shared = context is None or (isinstance(context, Context) and self.modulation == "gate" and _trusted(context))
        if not shared or self.linear not in (None, "value") or tuple(plain) not in ((), ("score", "value")):
            return False
        own = self.meta_embeddings, self.missing, None if self.linear is None else self.linear_weight
        tensors = [one for one in (values, self.knots, *own) if one is not None]
        single = all(one.dtype == torch.float32 for one in tensors) and not values.requires_grad
        return single and not self.value_space and native.serves(*tensors)

    def _blend_by_loop(
        self, values: Tensor, context: Tensor | Context | None, plain: Sequence[FeatureInput]
    ) -> Outputs:
        known = self.distributions
        places = values, known.knots, known.centre, known.scale
        linear = None if self.linear is None else self.linear_weight
        if isinstance(context, Context):
            fields, inputs = native.gated_blend(
                places,
                context,
                self.modulation_weight,
                self.beta,
                self.meta_embeddings,
                linear,
                self.missing,
                sums=self.basis == "thermometer",
                with_plain=bool(plain),
            )
        else:
            table = blend_rows(self.meta_embeddings, self.basis)
            fields, inputs = native.blend(places, table, linear, self.missing, with_plain=bool(plain))
        return Outputs(fields, inputs)

    def _weights(self, values: Tensor, place: Tensor | None) -> Tensor:
        """The weights v (B, q, rows), 0 before anything was observed."""
        if self._by_thermometer:
            return thermometer(values.to(torch.promote_types(values.dtype, self.knots.dtype)), self.place_knots())
        assert place is not None
        count = self.distributions.num_knots
        coordinates = place if count == self.num_meta else place * (self.num_meta / count)
        weights = basis_weights(coordinates, self.num_meta, self.basis)
        if self.basis == "hat":
            weights = weights * self.distributions.known().unsqueeze(1).to(weights.dtype)
        return weights

    def _place(self, values: Tensor) -> Tensor:
        return coordinate(values, self.place_knots()) if self.value_space else super()._place(values)

    def place_knots(self) -> Tensor:
        """The knots (q, K+1) among which places are counted."""
        if not self.value_space:
            return self.knots
        steps = torch.linspace(0.0, 1.0, self.knots.shape[1], dtype=self.knots.dtype, device=self.knots.device)
        return 2 * torch.lerp(self.knots[:, :1] / 2, self.knots[:, -1:] / 2, steps)  # halves cannot overflow

    def _check_context(self, context: Tensor | Context, num_rows: int) -> None:
        vectors = context.vectors if isinstance(context, Context) else context
        if vectors.dim() != 2 or vectors.shape[1] != self.context_dim:
            raise ValueError(f"context must have shape (B, {self.context_dim}), got {tuple(vectors.shape)}")
        rows = context.index if isinstance(context, Context) else context[:, 0]
        if rows.shape != (num_rows,):
            raise ValueError(f"context must have one entry for each of {num_rows} rows, got {tuple(rows.shape)}")


def _trusted(context: Context) -> bool:
    """Whether a compiled loop, which checks nothing, may look up the rows' contexts."""
    vectors, index = context
    return native.serves(index) and index.dtype == torch.int64 and native.within(index, len(vectors))
