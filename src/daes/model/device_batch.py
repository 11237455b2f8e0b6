"""A batch as tensors."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class DeviceBatch:
    """A batch as tensors on one device, moved there once for scoring and for learning.

    **Shape.** `numerical` (B, q), `categorical` (B, p), `label` and `weight` (B,).
    """

    numerical: Tensor
    categorical: Tensor
    label: Tensor | None = None
    weight: Tensor | None = None

    def __len__(self) -> int:
        return len(self.numerical)

    @property
    def features(self) -> tuple[Tensor, Tensor]:
        """The inputs of a model."""
        return self.numerical, self.categorical

    @property
    def targets(self) -> tuple[Tensor, ...]:
        """The further inputs of a loss: the label and, if there is one, the weight."""
        if self.label is None:
            raise ValueError("batch must have labels to compute a loss, got None")
        return (self.label,) if self.weight is None else (self.label, self.weight)
