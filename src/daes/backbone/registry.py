"""Backbones by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from daes.backbone.base import Backbone
from daes.registry import Entry, Registry


@dataclass(frozen=True, kw_only=True)
class BackboneEntry(Entry[Backbone]):
    """Description of a backbone: a row of the backbones table."""

    inputs: ClassVar[tuple[str, ...]] = ("num_fields", "dim", "plain_dim")

    interactions: str = ""
    """Which orders of interaction it computes."""
    authors: Mapping[str, Any] = field(default_factory=dict)
    """The authors' options if they differ from the defaults."""

    @property
    def takes_plain(self) -> bool:
        """Whether the network has an MLP or a cross network that takes plain inputs."""
        return self.cls.takes_plain

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "takes_plain": self.takes_plain}


BACKBONES = Registry("backbone", BackboneEntry)
"""Name → entry: the paper's six in its order, then the others."""

register_backbone = BACKBONES.register
"""Decorate a class to register it as a backbone; the arguments are the fields of `BackboneEntry`."""


def build_backbone(name: str, num_fields: int, dim: int, *, plain_dim: int = 0, **options: Any) -> Backbone:
    """Build a backbone by its name in `BACKBONES`.

    Args:
        name: a key of `BACKBONES`.
        num_fields: the number n of fields.
        dim: the dimension d of a field's vector.
        plain_dim: the number of plain inputs.
        options: options of the backbone; `BACKBONES[name].options` are all of them with their defaults.

    >>> import torch
    >>> backbone = build_backbone("dcnv2", num_fields=4, dim=16, layers=2, hidden=(32, 8))
    >>> backbone(torch.randn(8, 4, 16)).shape
    torch.Size([8])
    >>> build_backbone("fm", num_fields=4, dim=16, layers=2)
    Traceback (most recent call last):
    TypeError: fm has no option 'layers'; it has pairs
    """
    return BACKBONES.find(name).build(num_fields, dim, plain_dim=plain_dim, **options)
