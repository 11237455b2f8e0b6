"""The base class of all backbones: vectors of fields → one logit per row."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NoReturn, TypedDict

from torch import Tensor, nn

from daes.backbone.arguments import check_count, check_flag, check_rate, check_widths
from daes.backbone.layers import MLP, HiddenLayers, append_plain
from daes.native.network import Network
from daes.registry import Configurable


class Settings(TypedDict, total=False):
    """Options of every backbone with an MLP; `Backbone` has their defaults."""

    plain_dim: int
    hidden: Sequence[int]
    dropout: float
    batch_norm: bool
    slope: float


class Backbone(Configurable, nn.Module, ABC):
    """Base class: checks settings and inputs; a subclass implements its formula, `_logit`.

    **Shape.**
    - Input: `fields` of shape (B, n, d), one vector per numerical or categorical field. `plain` of shape (B, r), inputs
      without a vector, which are appended to the flattened fields in the MLP and in the cross network, never in a
      linear part or a product of fields.
    - Output: logits of shape (B,). An empty batch gives an empty tensor.

    In `train()`, a batch of one row has no variance: BatchNorm then uses its running statistics and does not change
    them.

    Args:
        num_fields: number n of fields; may be 0 with plain inputs.
        dim: dimension d of a field's vector.
        plain_dim: number r of plain inputs; an error for a model that cannot use them.
        hidden: widths of the MLP's hidden layers. With none, the MLP is a linear map.
        dropout: probability of dropping a hidden unit, in [0, 1).
        batch_norm: whether hidden layers are normalised.
        slope: slope of the activation below 0, in [0, 1); 0 is a ReLU.

    Example: a custom backbone.

    >>> import torch
    >>> class SumOfAll(Backbone):
    ...     def _logit(self, fields, plain):
    ...         return self.flatten(fields, plain).sum(dim=1)
    >>> backbone = SumOfAll(num_fields=3, dim=2, plain_dim=1)
    >>> backbone(torch.ones(2, 3, 2), torch.full((2, 1), 4.0))
    tensor([10., 10.])
    >>> backbone(torch.ones(2, 3, 5), torch.ones(2, 1))
    Traceback (most recent call last):
    ValueError: fields must have shape (B, 3, 2), got (2, 3, 5)
    """

    takes_plain: ClassVar[bool] = True
    """Whether the model has an MLP or a cross network that takes plain inputs."""

    def __init__(
        self,
        num_fields: int,
        dim: int,
        *,
        plain_dim: int = 0,
        hidden: Sequence[int] = (128, 32, 8),
        dropout: float = 0.0,
        batch_norm: bool = False,
        slope: float = 0.1,
    ) -> None:
        super().__init__()
        self.plain_dim = check_count("plain_dim", plain_dim, minimum=0)
        if self.plain_dim and not self.takes_plain:
            self._refuse_plain()
        self.num_fields = check_count("num_fields", num_fields, minimum=0 if self.plain_dim else 1)
        self.dim = check_count("dim", dim)
        self.hidden = check_widths("hidden", hidden, empty=True)
        self.dropout = check_rate("dropout", dropout)
        self.batch_norm = check_flag("batch_norm", batch_norm)
        self.slope = check_rate("slope", slope)

    def forward(self, fields: Tensor, plain: Tensor | None = None) -> Tensor:
        self._check(fields, plain)
        logits = self._logit(fields, plain)
        if logits.shape != fields.shape[:1]:
            raise ValueError(f"_logit of {type(self).__name__} must return shape (B,), got {tuple(logits.shape)}")
        return logits

    @abstractmethod
    def _logit(self, fields: Tensor, plain: Tensor | None) -> Tensor:
        """Logits (B,) of inputs whose shapes were checked."""

    def network(self) -> Network | None:
        """The weights of this backbone if compiled loops implement its formula, so that it need not be called."""
        return None

    @property
    def halves_batches(self) -> bool:
        """Whether two threads do most of the work on a large batch where torch has one (`daes.native.threads`)."""
        return False

    @property
    def input_dim(self) -> int:
        """n·d + r, the width of `flatten`'s result."""
        return self.num_fields * self.dim + self.plain_dim

    @staticmethod
    def flatten(fields: Tensor, plain: Tensor | None) -> Tensor:
        """Fields side by side, then the plain inputs: (B, n·d + r)."""
        return append_plain(fields.flatten(1), plain)

    def extra_repr(self) -> str:
        return f"num_fields={self.num_fields}, dim={self.dim}, plain_dim={self.plain_dim}"

    def _hidden_layers(self, in_features: int) -> HiddenLayers:
        """Hidden layers by this backbone's settings."""
        return HiddenLayers(
            in_features, self.hidden, dropout=self.dropout, batch_norm=self.batch_norm, slope=self.slope
        )

    def _mlp(self, in_features: int) -> MLP:
        """An MLP with a logit at its end, by this backbone's settings."""
        return MLP(self._hidden_layers(in_features))

    def _refuse_plain(self) -> NoReturn:
        reason = "which has no MLP and no cross network to take plain inputs"
        raise ValueError(f"plain_dim must be 0 for {type(self).__name__}, {reason}, got {self.plain_dim}")

    def _check(self, fields: Tensor, plain: Tensor | None) -> None:
        if fields.dim() != 3 or fields.shape[1] != self.num_fields or fields.shape[2] != self.dim:
            expected = f"(B, {self.num_fields}, {self.dim})"
            raise ValueError(f"fields must have shape {expected}, got {tuple(fields.shape)}")
        if not fields.is_floating_point():
            raise TypeError(f"fields must be vectors of a floating-point type, got {fields.dtype}")
        if plain is None:
            if self.plain_dim:
                raise ValueError(f"plain must have shape (B, {self.plain_dim}), got None")
        elif not self.plain_dim:
            raise ValueError(f"plain must be None for a backbone of plain_dim=0, got shape {tuple(plain.shape)}")
        elif plain.dim() != 2 or plain.shape[1] != self.plain_dim or plain.shape[0] != fields.shape[0]:
            expected = f"({fields.shape[0]}, {self.plain_dim})"
            raise ValueError(f"plain must have shape {expected}, got {tuple(plain.shape)}")
        elif not plain.is_floating_point():
            raise TypeError(f"plain must be of a floating-point type, got {plain.dtype}")
