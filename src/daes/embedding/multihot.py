"""MultiHot: equal-frequency bins, and the sum of the rows of neighbouring bins."""

from typing import Unpack

import torch
from torch import Tensor

from daes.distribution.base import check_non_negative
from daes.embedding.base import SharedOptions
from daes.embedding.efd import EFD
from daes.embedding.registry import register_method
from daes.registry import Reference


@register_method(
    "multihot",
    title="MultiHot embedding",
    short="MultiHot",
    family="static binning",
    reference=Reference(
        "Zhang et al.",
        "MultiHot Embedding: A Multiple Activation Embedding Model for Numerical Features in Deep Learning",
        "submitted to ICLR",
        2024,
    ),
    order=5,
    distribution_aware=True,
)
class MultiHot(EFD):
    """MultiHot embedding: the sum of the rows within h bins of the value's own.

        e(x) = Σ_{|i−j| ≤ h} E_i,   j the equal-frequency bin of x

    At the ends of the range there are fewer neighbours, hence fewer rows. The sum over a bin's neighbours does not
    depend on the value, so it is computed once per bin, and a value needs one look-up as in `EFD`; h = 0 is `EFD`.

    **Shape.** values (B, q) → (B, q, d); `table` (q, M, d), `edges` (q, M − 1).

    NOTE[DIFF]: in the public code all features share one table; here each feature has its own rows, because bins of
    different features have nothing in common.

    >>> method = MultiHot(1, dim=1, num_bins=4).fit(torch.arange(1.0, 5.0).unsqueeze(1))
    >>> with torch.no_grad():
    ...     _ = method.table.copy_(torch.tensor([1.0, 10.0, 100.0, 1000.0]).reshape(1, 4, 1))
    >>> method(torch.tensor([[1.0], [2.0], [4.0]])).flatten().tolist()
    [11.0, 111.0, 1100.0]

    Args:
        num_bins: number M of bins.
        neighbours: number h of neighbouring bins on each side.
    """

    def __init__(
        self,
        num_features: int,
        dim: int = 16,
        *,
        num_bins: int = 10,
        neighbours: int = 1,
        **shared: Unpack[SharedOptions],
    ) -> None:
        check_non_negative(neighbours=neighbours)
        super().__init__(num_features, dim, num_bins=num_bins, **shared)
        self.neighbours = neighbours

    def rows(self) -> Tensor:
        padded = torch.nn.functional.pad(self.table, (0, 0, self.neighbours, self.neighbours))
        shifted = [padded[:, shift : shift + self.num_bins] for shift in range(2 * self.neighbours + 1)]
        return torch.stack(shifted).sum(0)
