"""Titles of methods and backbones in tables and figures, from their registries."""

from daes.backbone import BACKBONES
from daes.embedding import METHODS
from daes.experiments.rivals import RIVALS


def method_title(name: str) -> str:
    """The short title of a method; a label that is not the name of a method is returned as it is."""
    return METHODS[name].short if name in METHODS else RIVALS[name].short if name in RIVALS else name


def backbone_title(name: str) -> str:
    """The short title of a backbone; a label that is not the name of a backbone is returned as it is."""
    return BACKBONES[name].short if name in BACKBONES else name
