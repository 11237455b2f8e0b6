"""Backbones by name."""

from typing import Any

from daes.backbone.afm import AFM
from daes.backbone.afn import AFN
from daes.backbone.autoint import AutoInt
from daes.backbone.base import Backbone
from daes.backbone.dcn import DCN
from daes.backbone.dcnv2 import DCNv2
from daes.backbone.deepfm import DeepFM
from daes.backbone.fm import FM
from daes.backbone.fnn import FNN
from daes.backbone.fwfm import FwFM
from daes.backbone.ipnn import IPNN
from daes.backbone.lr import LR
from daes.backbone.masknet import MaskNet
from daes.backbone.nfm import NFM
from daes.backbone.opnn import OPNN
from daes.backbone.widedeep import WideDeep
from daes.backbone.xdeepfm import XDeepFM

PAPER_BACKBONES = ("fnn", "widedeep", "deepfm", "ipnn", "dcnv2", "xdeepfm")
"""The six of the paper's table, in its order."""

BACKBONES: dict[str, type[Backbone]] = {
    "fnn": FNN,
    "widedeep": WideDeep,
    "deepfm": DeepFM,
    "ipnn": IPNN,
    "dcnv2": DCNv2,
    "xdeepfm": XDeepFM,
    "lr": LR,
    "fm": FM,
    "fwfm": FwFM,
    "nfm": NFM,
    "afm": AFM,
    "opnn": OPNN,
    "autoint": AutoInt,
    "dcn": DCN,
    "afn": AFN,
    "masknet": MaskNet,
}
"""Every backbone by its name: the paper's six, then their neighbours."""


def build_backbone(name: str, num_fields: int, dim: int, *, raw_dim: int = 0, **options: Any) -> Backbone:
    """A backbone by name.

    Args:
        name: a key of `BACKBONES`.
        num_fields: how many fields n the model is given.
        dim: the width d of a field's vector.
        raw_dim: how many raw inputs join them.
        options: the model's own; `BACKBONES[name].options()` lists them with their defaults.

    >>> import torch
    >>> backbone = build_backbone("dcnv2", num_fields=4, dim=16, layers=2, hidden=(32, 8))
    >>> backbone(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    >>> build_backbone("fm", num_fields=4, dim=16, layers=2)
    Traceback (most recent call last):
    TypeError: options of fm must be none, got 2
    """
    if name not in BACKBONES:
        raise ValueError(f"name must be one of {', '.join(BACKBONES)}, got {name!r}")
    backbone = BACKBONES[name]
    known = backbone.options()
    unknown = ", ".join(f"{key}={value!r}" for key, value in options.items() if key not in known)
    if unknown:
        allowed = f"among {', '.join(known)}" if known else "none"
        raise TypeError(f"options of {name} must be {allowed}, got {unknown}")
    return backbone(num_fields, dim, raw_dim=raw_dim, **options)
