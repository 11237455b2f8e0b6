"""Vectors to logit: one interaction a file, one interface, one registry."""

from daes.backbone.afm import AFM
from daes.backbone.afn import AFN
from daes.backbone.autoint import AutoInt
from daes.backbone.base import Backbone, BackboneInfo
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
from daes.backbone.registry import BACKBONES, PAPER_BACKBONES, build_backbone
from daes.backbone.widedeep import WideDeep
from daes.backbone.xdeepfm import XDeepFM

__all__ = [
    "AFM",
    "AFN",
    "BACKBONES",
    "DCN",
    "FM",
    "FNN",
    "IPNN",
    "LR",
    "NFM",
    "OPNN",
    "PAPER_BACKBONES",
    "AutoInt",
    "Backbone",
    "BackboneInfo",
    "DCNv2",
    "DeepFM",
    "FwFM",
    "MaskNet",
    "WideDeep",
    "XDeepFM",
    "build_backbone",
]
