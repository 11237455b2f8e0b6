"""Vectors → logit: one interaction per file, one interface, one registry.

Modules of this package that register a backbone are found automatically.
"""

from daes.backbone.base import Backbone
from daes.backbone.registry import BACKBONES, BackboneEntry, build_backbone, register_backbone
from daes.registry import Reference, import_modules

import_modules(__name__, __path__)

__all__ = ["BACKBONES", "Backbone", "BackboneEntry", "Reference", "build_backbone", "register_backbone"]
