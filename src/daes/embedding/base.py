"""One interface for all ways to turn numbers into vectors, and the policies they share."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from daes.registry import Configurable


class Context(NamedTuple):
    """Categorical context of a batch in which many rows share few distinct contexts.

    **Shape.** `vectors` is (U, c), one row a distinct context; `index` is (B,), the context of each row.
    A plain (B, c) tensor of vectors does as well wherever a context is taken; this form lets
    everything that depends on the context alone be computed U times, not B times.
    """

    vectors: Tensor
    index: Tensor  # type: ignore[assignment]  # shadows tuple.index, which nobody needs here


class NotFittedError(RuntimeError):
    """An offline method was used before `fit`."""


class NumericalEmbedding(Configurable, nn.Module, ABC):
    """Number → vector: the base class of every method.

    The base class owns the policies: shape and dtype checks, missing values (NaN) as a learned vector per
    feature, ±inf clamped to the largest finite numbers, observation in training mode. A method writes its
    formula alone, in `encode`; a stateful one also `_observe`, an offline one `_fit`.

    A stateful method behaves like BatchNorm: in `train()` a forward first observes the batch, in `eval()`
    nothing changes. `observe(values)` may also be called by a loader (then set `observe_in_forward` to False).

    **Shape.** `forward(values, context=None)`: values (B, q), NaN = missing; context (B, c) or a `Context`;
    output (B, q', d), where q' is `num_outputs`: q for most methods. A method without an embedding has q' = 0 and gives
    its inputs to the network by `raw(values)`, (B, `raw_dim`).

    Args:
        num_features: the number q of numerical features.
        dim: the dimension d of an embedding.
        init_std: standard deviation of the normal law that embeddings start from.
    """

    offline: ClassVar[bool] = False
    """Whether the method needs `fit` before use."""
    fitted: Tensor

    def __init__(self, num_features: int, dim: int = 16, *, init_std: float = 0.01) -> None:
        super().__init__()
        check_positive(num_features=num_features, dim=dim)
        if not init_std >= 0:
            raise ValueError(f"init_std must not be negative, got {init_std}")
        self.num_features = num_features
        self.dim = dim
        self.init_std = init_std
        self.num_outputs = num_features
        self.raw_dim = 0
        self.observe_in_forward = True
        self.missing = self.new_table(num_features, dim)
        if self.offline:
            self.register_buffer("fitted", torch.tensor(False))

    @property
    def uses_context(self) -> bool:
        """Whether a context given in the call makes a difference; a field-aware method says True."""
        return False

    def new_table(self, *shape: int) -> nn.Parameter:
        """A parameter drawn from N(0, init_std²), as every embedding of the project starts."""
        return nn.Parameter(torch.randn(*shape) * self.init_std)

    def forward(self, values: Tensor, context: Tensor | Context | None = None) -> Tensor:
        finite, missing = self._prepare(values)
        return self._fill_missing(self.encode(finite, context), missing)

    def raw(self, values: Tensor) -> Tensor | None:
        """Inputs for the network beside the fields, (B, raw_dim); None for a method that has none."""
        return None

    def observe(self, values: Tensor) -> None:
        """Take the batch into the method's statistics; nothing for a stateless method."""
        self._check(values)
        if values.shape[0]:
            with torch.no_grad():
                self._observe(self._cast(values))

    def fit(self, values: Tensor, labels: Tensor | None = None) -> Self:
        """Read the statistics off a whole data set, values (N, q); a streaming method observes it.

        An offline method must be fitted before use. Some (`td`) need the labels (N,) as well.
        """
        self._check(values)
        if labels is not None and labels.shape != values.shape[:1]:
            raise ValueError(
                f"labels must have one entry a row, got shape {tuple(labels.shape)} for {values.shape[0]} rows"
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
    def encode(self, values: Tensor, context: Tensor | Context | None) -> Tensor:
        """The method's formula on finite values (B, q) (0 stands in for a missing one) → (B, q', d)."""

    def _observe(self, values: Tensor) -> None:
        """Update the statistics with values (B, q), NaN and ±inf included; called without gradients."""
        return

    def _fit(self, values: Tensor, labels: Tensor | None) -> None:
        """Offline statistics from values (N, q), NaN and ±inf included; called without gradients."""
        raise NotImplementedError(f"{type(self).__name__} is offline and must write _fit")

    def _fill_missing(self, encoded: Tensor, missing: Tensor) -> Tensor:
        # On the CPU it pays to touch the missing alone; looking for them would stall a device, and a graph cannot.
        if encoded.device.type == "cpu" and not torch.compiler.is_compiling():
            rows, features = missing.nonzero(as_tuple=True)
            if not len(rows):
                return encoded
            return encoded.index_put((rows, features), embedding(features, self.missing.to(encoded.dtype)))
        return torch.where(missing.unsqueeze(-1), self.missing.to(encoded.dtype), encoded)

    def _prepare(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Check, observe in training mode, and part the values into finite ones and a mask of the missing."""
        self._check(values)
        if self.offline:
            self._check_fitted()
        if self.training and self.observe_in_forward:
            self.observe(values)
        values = self._cast(values)
        missing = torch.isnan(values)
        return torch.nan_to_num(values, nan=0.0), missing

    def _check(self, values: Tensor) -> None:
        if values.dim() != 2 or values.shape[1] != self.num_features:
            raise ValueError(f"values must have shape (B, {self.num_features}), got {tuple(values.shape)}")
        if not values.is_floating_point():
            raise TypeError(f"values must be floating point, got {values.dtype}")

    def _check_fitted(self) -> None:
        # Reading the flag would stall a device, and a graph cannot branch on it: once seen true it is remembered.
        if self.__dict__.get("_seen_fitted") or torch.compiler.is_compiling():
            return
        if not bool(self.fitted):
            raise NotFittedError(
                f"{type(self).__name__} is an offline method: call fit(values) with representative rows before use"
            )
        self.__dict__["_seen_fitted"] = True

    def _cast(self, values: Tensor) -> Tensor:
        """Values in the precision statistics are kept in: that of the parameters, float32 at least."""
        return values.to(torch.promote_types(self.missing.dtype, torch.float32))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # Statistics stay in float32 or better when the module is cast to half precision: a CDF does not fit bfloat16.
        before = {
            name: buffer for name, buffer in self._buffers.items() if buffer is not None and buffer.is_floating_point()
        }
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, old in before.items():
            new = self._buffers[name]
            if new is not None and torch.finfo(new.dtype).bits < 32 <= torch.finfo(old.dtype).bits:
                self._buffers[name] = old.to(new.device)
        return self

    def extra_repr(self) -> str:
        return f"num_features={self.num_features}, dim={self.dim}"


def check_positive(**arguments: Any) -> None:
    """Each argument must be a whole number above zero."""
    for name, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise ValueError(f"{name} must be a positive integer, got {value!r}")
