"""What methods and backbones are called in tables and figures, as the registries know them."""

from daes.backbone import BACKBONES
from daes.embedding import METHODS
from daes.experiments.rivals import RIVALS


def method_title(name: str) -> str:
    """The short title of a method; a label that is no method's name stays as it is."""
    return METHODS[name].short if name in METHODS else RIVALS[name].short if name in RIVALS else name


def backbone_title(name: str) -> str:
    """The title of a backbone; a label that is no backbone's name stays as it is."""
    return BACKBONES[name].short if name in BACKBONES else name
