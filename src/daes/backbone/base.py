"""What every backbone is: field vectors in, one logit a sample out."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NoReturn, TypedDict

from torch import Tensor, nn

from daes.backbone.checks import check_count, check_flag, check_rate, check_widths
from daes.backbone.layers import MLP, append_raw


@dataclass(frozen=True)
class BackboneInfo:
    """What is known of a backbone: a row of the backbones table."""

    title: str
    """The model's name as its authors write it."""
    reference: str
    """Authors, venue year."""
    order: str
    """Which orders of interaction it computes."""


class Settings(TypedDict, total=False):
    """The options that every backbone with an MLP shares; their defaults stand in `Backbone` alone."""

    raw_dim: int
    hidden: Sequence[int]
    dropout: float
    batch_norm: bool


class Backbone(nn.Module, ABC):
    """Base class: owns the settings and the checks; a subclass owns its formula and writes `_logit`.

    **Shape.**
    - Input: `fields` of shape (B, n, d), one vector a field, numerical and categorical alike. `raw` of
      shape (B, r), the inputs of methods that have no embedding; they join the flattened fields in the MLP
      and in the cross network, never in a linear part or a product of fields.
    - Output: logits of shape (B,). An empty batch gives an empty tensor.

    In `train()`, a batch of one row has no variance to normalise by: BatchNorm then uses its running
    statistics and leaves them as they are.

    Args:
        num_fields: n. May be 0 where raw inputs are all there is.
        dim: d, the width of a field's vector.
        raw_dim: r. A model with no place for raw inputs refuses r > 0 instead of ignoring them.
        hidden: widths of the MLP's hidden layers. With none, the MLP is a linear map.
        dropout: probability of dropping a hidden unit, in [0, 1).
        batch_norm: whether hidden layers are normalised.

    Example: a backbone of one's own is a subclass with `_logit`.

    >>> import torch
    >>> class SumOfAll(Backbone):
    ...     def _logit(self, fields, raw):
    ...         return self.flatten(fields, raw).sum(dim=1)
    >>> backbone = SumOfAll(num_fields=3, dim=2, raw_dim=1)
    >>> backbone(torch.ones(2, 3, 2), torch.full((2, 1), 4.0))
    tensor([10., 10.])
    >>> backbone(torch.ones(2, 3, 5), torch.ones(2, 1))
    Traceback (most recent call last):
    ValueError: fields must have shape (B, 3, 2), got (2, 3, 5)
    """

    info: ClassVar[BackboneInfo]
    takes_raw: ClassVar[bool] = True
    """Whether the model has an MLP or a cross network for raw inputs to join."""

    def __init__(
        self,
        num_fields: int,
        dim: int,
        *,
        raw_dim: int = 0,
        hidden: Sequence[int] = (128, 32, 8),
        dropout: float = 0.2,
        batch_norm: bool = True,
    ) -> None:
        super().__init__()
        self.raw_dim = check_count("raw_dim", raw_dim, minimum=0)
        if self.raw_dim and not self.takes_raw:
            self._refuse_raw()
        self.num_fields = check_count("num_fields", num_fields, minimum=0 if self.raw_dim else 1)
        self.dim = check_count("dim", dim)
        self.hidden = check_widths("hidden", hidden, empty=True)
        self.dropout = check_rate("dropout", dropout)
        self.batch_norm = check_flag("batch_norm", batch_norm)

    def forward(self, fields: Tensor, raw: Tensor | None = None) -> Tensor:
        self._check(fields, raw)
        return self._logit(fields, raw)

    @abstractmethod
    def _logit(self, fields: Tensor, raw: Tensor | None) -> Tensor:
        """Logits (B,) of inputs whose shapes were checked."""

    @property
    def input_dim(self) -> int:
        """n·d + r, the width of `flatten`'s result."""
        return self.num_fields * self.dim + self.raw_dim

    @staticmethod
    def flatten(fields: Tensor, raw: Tensor | None) -> Tensor:
        """Fields side by side, then the raw inputs: (B, n·d + r)."""
        return append_raw(fields.flatten(1), raw)

    @classmethod
    def options(cls) -> dict[str, object]:
        """The options of this model and their defaults, `raw_dim` aside.

        >>> from daes.backbone import DCNv2, FM
        >>> DCNv2.options()
        {'layers': 3, 'rank': None, 'hidden': (128, 32, 8), 'dropout': 0.2, 'batch_norm': True}
        >>> FM.options()
        {}
        """
        found: dict[str, object] = {}
        for parameter in inspect.signature(cls.__init__).parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                found |= Backbone.options()
            elif parameter.kind is parameter.KEYWORD_ONLY and parameter.name != "raw_dim":
                found[parameter.name] = parameter.default
        return found

    def extra_repr(self) -> str:
        return f"num_fields={self.num_fields}, dim={self.dim}, raw_dim={self.raw_dim}"

    def _mlp(self, in_features: int) -> MLP:
        """An MLP with a logit at its end, by this backbone's settings."""
        return MLP(in_features, self.hidden, dropout=self.dropout, batch_norm=self.batch_norm)

    def _refuse_raw(self) -> NoReturn:
        reason = "which has no MLP and no cross network to take raw inputs"
        raise ValueError(f"raw_dim must be 0 for {self.info.title}, {reason}, got {self.raw_dim}")

    def _check(self, fields: Tensor, raw: Tensor | None) -> None:
        if fields.dim() != 3 or fields.shape[1] != self.num_fields or fields.shape[2] != self.dim:
            expected = f"(B, {self.num_fields}, {self.dim})"
            raise ValueError(f"fields must have shape {expected}, got {tuple(fields.shape)}")
        if not fields.is_floating_point():
            raise TypeError(f"fields must be vectors of a floating-point type, got {fields.dtype}")
        if raw is None:
            if self.raw_dim:
                raise ValueError(f"raw must have shape (B, {self.raw_dim}), got None")
        elif not self.raw_dim:
            raise ValueError(f"raw must be None for a backbone of raw_dim=0, got shape {tuple(raw.shape)}")
        elif raw.dim() != 2 or raw.shape[1] != self.raw_dim or raw.shape[0] != fields.shape[0]:
            expected = f"({fields.shape[0]}, {self.raw_dim})"
            raise ValueError(f"raw must have shape {expected}, got {tuple(raw.shape)}")
        elif not raw.is_floating_point():
            raise TypeError(f"raw must be of a floating-point type, got {raw.dtype}")
