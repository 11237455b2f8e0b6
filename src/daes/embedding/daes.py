"""DAES: distribution-aware end-to-end embedding for streaming numerical features."""

from collections.abc import Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor

from daes.embedding.base import Context, NumericalEmbedding, check_positive
from daes.embedding.interpolation import Basis, basis_weights, coordinate, thermometer, weighted_sum
from daes.embedding.modulation import gate, pool_context, tran
from daes.embedding.normal import normal_score
from daes.embedding.observer import EstimatorFactory, KnotsModule
from daes.embedding.registry import register_method
from daes.registry import Reference

Modulation = Literal["gate", "tran"]
LinearPath = Literal["value", "score", "rank"]
_PATHS = ("value", "score", "rank")

_FARTHEST_DEVIATION = 4.0


_REFERENCE = Reference(
    "Jiahao Liu et al.",
    "Distribution-Aware End-to-End Embedding for Streaming Numerical Features in Click-Through Rate Prediction",
    "arXiv",
    2026,
)


@register_method(
    "daes-gate",
    title="DAES, gate, as published",
    family="dynamic quantile",
    reference=_REFERENCE,
    preset={"modulation": "gate"},
    order=2,
    continuous=True,
    distribution_aware=True,
    field_aware=True,
)
@register_method(
    "daes-tran",
    title="DAES, tran, as published",
    family="dynamic quantile",
    reference=_REFERENCE,
    preset={"modulation": "tran"},
    order=3,
    continuous=True,
    distribution_aware=True,
    field_aware=True,
)
@register_method(
    "daes",
    title="DAES, our preset",
    family="dynamic quantile",
    reference=_REFERENCE,
    preset={"modulation": None, "basis": "hat", "knots": 100, "linear": "value", "raw": ["score", "value"]},
    order=4,
    continuous=True,
    distribution_aware=True,
)
class DAES(KnotsModule, NumericalEmbedding):
    """A number by its place in the stream's distribution, reweighted by context, as a sum of meta-embeddings.

    1. A reservoir inside the module keeps a uniform sample of each feature's stream; `knots` are its quantiles.
    2. The value's rank p̂ among the knots gives weights v on a basis of M (thermometer) or M+1 (hat) rows: see
       `daes.embedding.interpolation`.
    3. Categorical context e_f modulates them: w = β·(v ⊙ sigmoid(W e_f)) + (1−β)·v for "gate",
       w = β·sigmoid(reshape(W e_f) v) + (1−β)·v for "tran".
    4. e = Σ_i w_i E_i, plus, with `linear`, a global linear path z·u beside the basis. With `raw` the network gets such
       z themselves as well: vectors start small, z at unit scale.

    The class defaults are the paper's (`daes-gate`; with `modulation="tran"`, `daes-tran`). The preset `daes` of
    `build_embedding` is what we recommend: the hat basis, fine knots, a linear path and raw inputs.

    **Shape.** values (B, q), context (B, c) or `Context`, c being `context_dim` → (B, q, d); `raw` gives (B, r·q) for r
    raw inputs a feature, 0 where a value is missing. Parameters: `meta` (q, M, d) (M+1 rows for hat),
    `modulation_weight` (q, M, c) for gate and (q, M, M, c) for tran, `missing` (q, d), `linear_weight` (q, d). Buffer:
    `knots` (q, K+1).

    Args:
        num_features: the number q of numerical features.
        dim: the dimension d of an embedding.
        num_meta: the number M of bins.
        modulation: "gate", "tran" or None. Without a context in the call, modulation is off.
        beta: how far the context reaches, in [0, 1].
        basis: "thermometer" (the paper's) or "hat".
        knots: the number K of intervals the rank is read off; M by default (the paper's). Larger K follows heavy tails.
        linear: None, or what z is: "value" (standardised, clamped to ±4), "score" (Φ⁻¹ of the rank) or "rank" (√12·(p̂ −
            ½)).
        raw: which of these are also plain inputs to the network. A model whose network has no place for plain inputs
            leaves them out.
        context_pool: how the model makes one context vector of several fields: "mean", "sum" or "concat".
        num_context: the number of context fields, which with "concat" widens the modulation.
        estimator: what estimates the distribution: "jump", "jump-paper", "reservoir", "order-statistics", "kll",
            "tdigest", "gk", or a function from a feature's number to a `DistributionEstimator`.
        reservoir_size: the number m of slots a feature.
        bounds: a fixed pair (low, high), or one a feature, in place of the smallest and largest value seen.
        value_space: interpolate in value space instead, between `bounds` cut into M equal parts (the paper's ablation);
            ranks are then places in that range.
        tolerance: how far a rank may lag behind the reservoir, see `JumpReservoir`.
        seed: where the reservoir's random numbers start.
        init_std: standard deviation of the normal law that embeddings start from.
        estimator_options: further arguments of the estimator, as `{"half_life": 1e6}`.

    >>> _ = torch.manual_seed(0)
    >>> embedding = DAES(num_features=2, dim=4)
    >>> values = torch.tensor([[1.0, 10.0], [2.0, torch.nan], [3.0, 30.0]])
    >>> embedding(values).shape
    torch.Size([3, 2, 4])
    >>> embedding.knots[:, [0, 5, 10]]
    tensor([[ 1.,  2.,  3.],
            [10., 10., 30.]])
    """

    centre: Tensor
    scale: Tensor

    def __init__(
        self,
        num_features: int,
        dim: int = 16,
        *,
        num_meta: int = 10,
        modulation: Modulation | None = "gate",
        beta: float = 0.5,
        basis: Basis = "thermometer",
        knots: int | None = None,
        linear: LinearPath | None = None,
        raw: Sequence[LinearPath] = (),
        context_pool: Literal["mean", "sum", "concat"] = "mean",
        num_context: int = 3,
        estimator: str | EstimatorFactory = "jump",
        reservoir_size: int = 100_000,
        bounds: tuple[float, float] | Sequence[tuple[float, float]] | None = None,
        value_space: bool = False,
        tolerance: float = 5e-3,
        seed: int = 0,
        init_std: float = 0.01,
        estimator_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(num_features, dim, init_std=init_std)
        knots = num_meta if knots is None else knots
        check_positive(num_meta=num_meta, knots=knots, num_context=num_context)
        _check_choice(modulation=(modulation, ("gate", "tran", None)), basis=(basis, ("thermometer", "hat")))
        _check_choice(linear=(linear, (*_PATHS, None)), context_pool=(context_pool, ("mean", "sum", "concat")))
        if not isinstance(raw, list | tuple) or len(set(raw)) < len(raw):
            raise ValueError(f"raw must be a list of different names, got {raw!r}")
        for path in raw:
            _check_choice(raw=(path, _PATHS))
        if not 0 <= beta <= 1:
            raise ValueError(f"beta must lie in [0, 1], got {beta}")
        self.num_meta = num_meta
        self.modulation = modulation
        self.beta = beta
        self.basis: Basis = basis
        self.linear = linear
        self.context_pool = context_pool
        self.context_dim = dim * num_context if context_pool == "concat" else dim
        self.value_space = value_space
        self.raw_paths = tuple(raw)
        self.raw_dim = len(self.raw_paths) * num_features
        self.init_knots(
            num_features,
            knots,
            estimator=estimator,
            reservoir_size=reservoir_size,
            seed=seed,
            bounds=bounds,
            tolerance=tolerance,
            **(estimator_options or {}),
        )
        rows = num_meta if basis == "thermometer" else num_meta + 1
        self.meta = self.new_table(num_features, rows, dim)
        if modulation is not None:
            square = (rows,) if modulation == "tran" else ()
            self.modulation_weight = self.new_table(num_features, rows, *square, self.context_dim)
        if linear is not None:
            self.linear_weight = self.new_table(num_features, dim)
        if "value" in (linear, *raw):
            self.register_buffer("centre", torch.zeros(num_features))
            self.register_buffer("scale", torch.zeros(num_features))

    @classmethod
    def from_knots(cls, knots: Tensor, dim: int = 16, **options: Any) -> Self:
        """A DAES with fixed knots (q, K+1), which observes nothing.

        With `linear="value"` centre and scale are those of the knots. At `modulation=None` or β = 0 this is PLE.
        """
        if knots.dim() != 2 or knots.shape[1] < 2 or not bool((knots.diff(dim=1) >= 0).all()):
            raise ValueError(f"knots must be (q, K+1) and ascending in each row, got shape {tuple(knots.shape)}")
        count = knots.shape[1] - 1
        made = cls(knots.shape[0], dim, **{"num_meta": count, **options, "knots": count, "reservoir_size": 1})
        made.bank = None
        made.knots.copy_(knots)
        if made._standardises:
            made.centre.copy_(knots.mean(1))
            made.scale.copy_(knots.std(1, correction=0))
        return made

    @property
    def uses_context(self) -> bool:
        return self.modulation is not None and self.beta > 0

    @property
    def _standardises(self) -> bool:
        return "value" in (self.linear, *self.raw_paths)

    def pool(self, vectors: Tensor) -> Tensor:
        """The context vectors this module expects, (U, c), from the embeddings of the context fields, (U, n, d)."""
        return pool_context(vectors, self.context_pool)

    def _observe(self, values: Tensor) -> None:
        if self.bank is None:
            return
        self.observe_knots(values)

    def follow(self, likely: Tensor) -> None:
        if self._standardises:
            likely = likely.double()  # a sum of large numbers may leave float32
            self.centre.copy_(likely.mean(1))
            self.scale.copy_(likely.std(1, correction=0))

    def encode(self, values: Tensor, context: Tensor | Context | None) -> Tensor:
        weights, place = self._weights(values)
        if context is not None and self.uses_context:
            self._check_context(context, values.shape[0])
            modulate = gate if self.modulation == "gate" else tran
            weights = modulate(weights, context, self.modulation_weight, self.beta)
        encoded = weighted_sum(weights, self.meta)
        if self.linear is not None:
            path = self._path(self.linear, values, place).to(encoded.dtype)
            encoded = encoded + path.unsqueeze(-1) * self.linear_weight
        return encoded

    def raw(self, values: Tensor) -> Tensor | None:
        if not self.raw_dim:
            return None
        self._check(values)
        values = self._cast(values)
        finite, missing = torch.nan_to_num(values, nan=0.0), torch.isnan(values)
        place = None if self.raw_paths == ("value",) else coordinate(finite, self._place_knots())
        inputs = [torch.where(missing, 0.0, self._path(path, finite, place)) for path in self.raw_paths]
        return torch.cat(inputs, 1).to(self.meta.dtype)

    def _weights(self, values: Tensor) -> tuple[Tensor, Tensor | None]:
        """The weights v (B, q, rows), 0 before anything was observed, and the coordinate among the knots (B, q)."""
        knots, count = self._place_knots(), self.knots.shape[1] - 1
        if self.basis == "thermometer" and count == self.num_meta and self.linear in (None, "value"):
            return thermometer(values, knots), None
        place = coordinate(values, knots)
        weights = basis_weights(
            place if count == self.num_meta else place * (self.num_meta / count), self.num_meta, self.basis
        )
        if self.basis == "hat":
            weights = weights * torch.isfinite(knots[:, :1]).to(weights.dtype)
        return weights, place

    def _place_knots(self) -> Tensor:
        if not self.value_space:
            return self.knots
        steps = torch.linspace(0.0, 1.0, self.knots.shape[1], dtype=self.knots.dtype, device=self.knots.device)
        return 2 * torch.lerp(self.knots[:, :1] / 2, self.knots[:, -1:] / 2, steps)  # halves cannot overflow

    def _standardised(self, values: Tensor) -> Tensor:
        spread = torch.where(self.scale > 0, self.scale, torch.inf)  # a constant feature has no deviation
        deviation = (values / 2 - self.centre / 2) / (spread / 2)  # halves cannot overflow
        return deviation.clamp(-_FARTHEST_DEVIATION, _FARTHEST_DEVIATION)

    def _path(self, path: LinearPath, values: Tensor, place: Tensor | None) -> Tensor:
        """The coordinate z (B, q) of a path, 0 before anything was observed."""
        if path == "value":
            return self._standardised(values)
        assert place is not None
        count = self.knots.shape[1] - 1
        if path == "rank":
            return torch.where(torch.isfinite(self.knots[:, 0]), 12**0.5 * (place / count - 0.5), 0.0)
        # Half a knot from the ends: where the reservoir's resolution stops, so does the score.
        score = normal_score((place / count).clamp(0.5 / count, 1 - 0.5 / count))
        return torch.where(torch.isfinite(self.knots[:, 0]), score, 0.0)

    def _check_context(self, context: Tensor | Context, num_rows: int) -> None:
        vectors = context.vectors if isinstance(context, Context) else context
        if vectors.dim() != 2 or vectors.shape[1] != self.context_dim:
            raise ValueError(f"context must have shape (B, {self.context_dim}), got {tuple(vectors.shape)}")
        rows = context.index if isinstance(context, Context) else context[:, 0]
        if rows.shape != (num_rows,):
            raise ValueError(f"context must have one entry for each of {num_rows} rows, got {tuple(rows.shape)}")

    def extra_repr(self) -> str:
        return (
            f"{super().extra_repr()}, num_meta={self.num_meta}, modulation={self.modulation!r}, beta={self.beta}, "
            f"basis={self.basis!r}, knots={self.knots.shape[1] - 1}, linear={self.linear!r}, "
            f"raw={self.raw_paths}"
        )


def _check_choice(**arguments: tuple[Any, tuple[Any, ...]]) -> None:
    for name, (value, allowed) in arguments.items():
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
