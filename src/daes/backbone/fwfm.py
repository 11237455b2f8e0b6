"""FwFM: field-weighted factorisation machine."""

from torch import Tensor, nn

from daes.backbone.layers import InnerProducts, Readout
from daes.backbone.lr import LR
from daes.backbone.registry import register_backbone
from daes.registry import Reference


@register_backbone(
    "fwfm",
    title="FwFM",
    reference=Reference(
        "Junwei Pan et al.",
        "Field-Weighted Factorization Machines for Click-Through Rate Prediction in Display Advertising",
        "WWW",
        2018,
    ),
    order=9,
    interactions="1, 2 (weighted by field pair)",
)
class FwFM(LR):
    """Field-weighted factorisation machine: FM with a learned strength for every pair of fields.

        logit = Σ_i ⟨w_i, e_i⟩ + b + Σ_{i<j} r_ij ⟨e_i, e_j⟩

    The strengths start at 1, where the model is FM.

    **Shape.** fields (B, n, d) → (B,).

    >>> import torch
    >>> from daes.backbone.fm import FM
    >>> fields, fwfm, fm = torch.randn(8, 4, 16), FwFM(num_fields=4, dim=16), FM(num_fields=4, dim=16)
    >>> fm.load_state_dict(fwfm.state_dict(), strict=False).unexpected_keys
    ['strength.weight']
    >>> bool(torch.allclose(fwfm(fields), fm(fields), atol=1e-4))
    True
    """

    def __init__(self, num_fields: int, dim: int, *, plain_dim: int = 0) -> None:
        super().__init__(num_fields, dim, plain_dim=plain_dim)
        self.pairs = InnerProducts(self.num_fields)
        self.strength = Readout(self.num_fields * (self.num_fields - 1) // 2, bias=False)
        nn.init.ones_(self.strength.weight)

    def _logit(self, fields: Tensor, plain: Tensor | None) -> Tensor:
        return super()._logit(fields, plain) + self.strength(self.pairs(fields))
