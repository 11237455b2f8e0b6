"""The interface of all methods that turn numbers into vectors, and their common base class."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self, TypedDict

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from daes.distribution.base import check_positive
from daes.embedding.estimator_knots import EstimatorFactory, make_distributions
from daes.embedding.knots import INPUTS, Bounds, FeatureInput, FeatureKnots
from daes.embedding.precision import KeepsSinglePrecision
from daes.embedding.processes import num_processes, refuse_several_processes
from daes.embedding.search import finite
from daes.registry import Configurable


class Context(NamedTuple):
    """Categorical context of a batch whose rows share few distinct contexts.

    Wherever a context is accepted, so is a plain (B, c) tensor of vectors; with this form, what depends on the context
    only is computed U times instead of B times.

    **Shape.** `vectors` is (U, c), one row per distinct context; `index` is (B,), the context of each row.
    """

    vectors: Tensor
    index: Tensor  # type: ignore[assignment]  # shadows tuple.index, which nobody needs here


class NotFittedError(RuntimeError):
    """An offline method was used before `fit`."""


class Outputs(NamedTuple):
    """The inputs of the network: `fields` (B, q', d), and `plain` inputs (B, plain_dim), or None."""

    fields: Tensor
    plain: Tensor | None


class SharedOptions(TypedDict, total=False):
    """Options of every method, see `NumericalEmbedding`."""

    init_std: float
    plain: Sequence[FeatureInput]
    estimator: str | EstimatorFactory
    reservoir_size: int
    seed: int
    estimator_options: Mapping[str, Any] | None


class NumericalEmbedding(Configurable, KeepsSinglePrecision, ABC):
    """Number → vector: the base class of every method.

    The base class implements what methods share: shape and dtype checks, missing values (NaN) as a learned vector per
    feature, ±inf clamped to the largest finite numbers, observation in training mode, the distributions of the features
    if needed, plain inputs. A method implements its formula in `encode`; a stateful one also `_observe`, an offline one
    `_fit`.

    A stateful method behaves like BatchNorm: in `train()` a forward first observes the batch, in `eval()` nothing
    changes. A loader may call `observe(values)` instead (then set `observe_in_forward` to False). If several processes
    train one model, a forward that would update distributions is an error, since each process has its own rows.

    **Shape.** `forward(values, context=None)`: values (B, q), NaN = missing; context (B, c) or a `Context`; output
    (B, q', d), where q' is `num_outputs`: q for most methods, 0 for a method without an embedding. `outputs` takes the
    same and returns `Outputs`: the fields and the plain inputs (B, `plain_dim`), from one pass over the values.

    Args:
        num_features: number q of numerical features.
        dim: dimension d of an embedding.
        num_knots: intervals between the knots of `distributions`, for a method that reads them; None for one that does
            not: it has distributions (with 100) only if `plain` needs them.
        bounds: as in `FeatureDistributions`.
        tolerance: as in `FeatureDistributions`.
        init_std: standard deviation of the initial embeddings, which are normally distributed.
        plain: inputs of unit scale for the network beside the vectors, per feature, 0 where a value is missing: "value"
            (standardised, clamped to ±4), "score" (the normal score Φ⁻¹ of the rank) or "rank" (√12·(p̂ − ½)). A model
            whose network cannot take plain inputs ignores them.
        estimator: estimator of the distributions: "jump", "jump-paper", "reservoir", "order-statistics", "kll",
            "tdigest", "gk", or a function from a feature's index to a `DistributionEstimator`.
        reservoir_size: number m of slots per feature.
        seed: of the reservoirs' random numbers.
        estimator_options: further arguments of the estimator, such as `{"half_life": 1e6}`.
    """

    offline: ClassVar[bool] = False
    """Whether the method needs `fit` before use."""
    refits: ClassVar[bool] = False
    """Whether an offline method can be fitted again and keep what it learned, because its rows stand for ranks."""
    fitted: Tensor
    distributions: FeatureKnots | None

    def __init__(
        self,
        num_features: int,
        dim: int = 16,
        *,
        num_knots: int | None = None,
        bounds: Bounds | None = None,
        tolerance: float = 1e-2,
        init_std: float = 0.01,
        plain: Sequence[FeatureInput] = (),
        estimator: str | EstimatorFactory = "jump",
        reservoir_size: int = 100_000,
        seed: int = 0,
        estimator_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        check_positive(num_features=num_features, dim=dim)
        if not 0 <= init_std < float("inf"):
            raise ValueError(f"init_std must be finite and not negative, got {init_std}")
        if not isinstance(plain, list | tuple) or len(set(plain)) < len(plain) or not set(plain) <= set(INPUTS):
            raise ValueError(f"plain must be a list of distinct names from {', '.join(INPUTS)}, got {plain!r}")
        self.num_features = num_features
        self.dim = dim
        self.init_std = init_std
        self.num_outputs = num_features
        self.plain = tuple(plain)
        self.observe_in_forward = True
        self.distributions = None
        if num_knots is not None or plain:
            self.distributions = make_distributions(
                num_features,
                100 if num_knots is None else num_knots,
                estimator=estimator,
                reservoir_size=reservoir_size,
                seed=seed,
                tolerance=tolerance,
                bounds=bounds,
                options=estimator_options,
            )
        self.missing = self.new_table(num_features, dim)
        if self.offline:
            self.register_buffer("fitted", torch.tensor(False))

    @property
    def uses_context(self) -> bool:
        """Whether the vectors depend on the context; True for a field-aware method."""
        return False

    @property
    def plain_dim(self) -> int:
        """Number of plain inputs that `outputs` returns."""
        return len(self.plain) * self.num_features

    @property
    def reads_place(self) -> bool:
        """Whether `encode` needs the places of the values among the knots."""
        return False

    @property
    def tables(self) -> list[nn.Parameter]:
        """The parameters with a vector per bin, (q, M, d): `table` or `meta_embeddings`, by convention."""
        found = (getattr(self, name, None) for name in ("table", "meta_embeddings"))
        return [table for table in found if isinstance(table, nn.Parameter) and table.ndim == 3]

    def new_table(self, *shape: int) -> nn.Parameter:
        """A parameter drawn from N(0, init_std²), the initial distribution of all embeddings."""
        return nn.Parameter(torch.randn(*shape) * self.init_std)

    @staticmethod
    def new_weight(width_in: int, *shape: int) -> nn.Parameter:
        """A weight or bias, initialised as that of `nn.Linear` with `width_in` inputs."""
        bound = width_in**-0.5
        return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound))

    def forward(self, values: Tensor, context: Tensor | Context | None = None) -> Tensor:
        return self._outputs(values, context, with_plain=False).fields

    def outputs(self, values: Tensor, context: Tensor | Context | None = None) -> Outputs:
        """The vectors that a call returns, and the plain inputs, from one search among the knots."""
        return self._outputs(values, context, with_plain=True)

    def _outputs(self, values: Tensor, context: Tensor | Context | None, *, with_plain: bool) -> Outputs:
        values, plain = self._prepare(values), self.plain if with_plain else ()
        if (fused := self._fused(values, context, plain)) is not None:
            return fused
        missing, known = torch.isnan(values), finite(values)
        place = self._place(known) if self.reads_place or {"score", "rank"} & set(plain) else None
        fields = self._fields(known, missing, place, context)
        return Outputs(fields, self._plain(known, place, missing) if with_plain and self.plain_dim else None)

    def observe(self, values: Tensor) -> None:
        """Update the method's statistics with a batch; a stateless method has none."""
        self._check(values)
        if values.shape[0]:
            with torch.no_grad():
                values = self._cast(values)
                if self.distributions is not None:
                    self.distributions.observe(values)
                self._observe(values)

    def fit(self, values: Tensor, labels: Tensor | None = None) -> Self:
        """Compute the statistics from a whole data set, values (N, q); a streaming method observes it.

        An offline method must be fitted before use. `td` also needs the labels (N,).
        """
        self._check(values)
        if labels is not None and labels.shape != values.shape[:1]:
            raise ValueError(
                f"labels must have one entry per row, got shape {tuple(labels.shape)} for {values.shape[0]} rows"
            )
        if not self.offline:
            self.observe(values)
            return self
        if not values.shape[0]:
            raise ValueError("values must have at least one row to fit on, got 0 rows")
        with torch.no_grad():
            self._fit(self._cast(values), labels)
        self.fitted.fill_(True)
        return self

    @abstractmethod
    def encode(self, values: Tensor, place: Tensor | None, context: Tensor | Context | None) -> Tensor:
        """The method's formula on finite values (B, q), 0 for a missing one → (B, q', d).

        `place` (B, q) is the position of the values among the knots, from 0 to K, for a method with `reads_place`.
        """

    def _fused(self, values: Tensor, context: Tensor | Context | None, plain: Sequence[FeatureInput]) -> Outputs | None:
        """The outputs for values (B, q), NaN = missing, from one kernel; None if the method has none."""
        return None

    def _observe(self, values: Tensor) -> None:
        """Update the statistics with values (B, q), NaN and ±inf included; called without gradients."""
        return

    def _place(self, values: Tensor) -> Tensor:
        """The place of finite values (B, q) among the knots."""
        if self.distributions is None:
            raise ValueError(f"num_knots must be given to the base class of {type(self).__name__}, which reads places")
        return self.distributions.place(values)

    def _plain(self, values: Tensor, place: Tensor | None, missing: Tensor) -> Tensor:
        """The plain inputs (B, plain_dim), 0 where a value is missing."""
        assert self.distributions is not None
        inputs = [self.distributions.input(kind, values, place) for kind in self.plain]
        return torch.cat([torch.where(missing, 0.0, one) for one in inputs], 1).to(self.missing.dtype)

    def _fit(self, values: Tensor, labels: Tensor | None) -> None:
        """Offline statistics from values (N, q), NaN and ±inf included; called without gradients."""
        raise NotImplementedError(f"{type(self).__name__} is offline and must write _fit")

    def _fields(
        self, values: Tensor, missing: Tensor, place: Tensor | None, context: Tensor | Context | None
    ) -> Tensor:
        """The vectors (B, q', d): from the formula, or learned ones where a value is missing."""
        encoded = self.encode(values, place, context)
        if encoded.shape != (values.shape[0], self.num_outputs, self.dim):
            expected = f"(B, {self.num_outputs}, {self.dim})"
            raise ValueError(f"encode of {type(self).__name__} must return {expected}, got {tuple(encoded.shape)}")
        return self._fill_missing(encoded, missing)

    def _fill_missing(self, encoded: Tensor, missing: Tensor) -> Tensor:
        # On the CPU it pays to write the missing ones only; to look for them would stall a device, and a graph cannot.
        if encoded.device.type == "cpu" and not torch.compiler.is_compiling():
            rows, features = missing.nonzero(as_tuple=True)
            # Processes that train one model need a gradient for every parameter, even if it is zero.
            if not len(rows) and num_processes() == 1:
                return encoded
            return encoded.index_put((rows, features), embedding(features, self.missing.to(encoded.dtype)))
        return torch.where(missing.unsqueeze(-1), self.missing.to(encoded.dtype), encoded)

    def _prepare(self, values: Tensor) -> Tensor:
        """Check, observe in training mode, and cast the values."""
        self._check(values)
        if self.offline:
            self._check_fitted()
        if self.training and self.observe_in_forward:
            if self.distributions is not None and self.distributions.follows:
                refuse_several_processes(
                    "the distributions",
                    "set observe_in_forward to False and pass the rows of all processes to observe in each of them",
                )
            self.observe(values)
        return self._cast(values)

    def _check(self, values: Tensor) -> None:
        if not isinstance(values, Tensor):
            raise TypeError(f"values must be a tensor, got {type(values).__name__}")
        if values.dim() != 2 or values.shape[1] != self.num_features:
            raise ValueError(f"values must have shape (B, {self.num_features}), got {tuple(values.shape)}")
        if not values.is_floating_point():
            raise TypeError(f"values must be floating point, got {values.dtype}")

    def _check_fitted(self) -> None:
        # Reading the flag would stall a device, and a graph cannot branch on it, so a true flag is remembered.
        if self.__dict__.get("_seen_fitted") or torch.compiler.is_compiling():
            return
        if not bool(self.fitted):
            raise NotFittedError(
                f"{type(self).__name__} is an offline method: call fit(values) with representative rows before use"
            )
        self.__dict__["_seen_fitted"] = True

    def _cast(self, values: Tensor) -> Tensor:
        """The values in the precision of the statistics: that of the parameters, at least float32."""
        return values.to(torch.promote_types(self.missing.dtype, torch.float32))

    def extra_repr(self) -> str:
        """The arguments that were given."""
        shown = {"num_features": self.num_features, "dim": self.dim, **self.arguments}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())
