"""Numerical methods by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from daes.embedding.base import NumericalEmbedding
from daes.registry import Entry, Registry

FAMILIES = ("static binning", "neural", "interpolated binning", "dynamic quantile")
"""The families of methods in the order of tables; a new family comes after them."""


@dataclass(frozen=True, kw_only=True)
class MethodEntry(Entry[NumericalEmbedding]):
    """Description of a method: a row of the methods table."""

    inputs: ClassVar[tuple[str, ...]] = ("num_features", "dim")

    family: str
    continuous: bool = False
    """Whether close values have close vectors."""
    distribution_aware: bool = False
    """Whether the vector depends on the rank of the value, not on its size."""
    field_aware: bool = False
    """Whether the vector also depends on the row's categories."""
    reconstruction: bool = False
    """Whether the method was reconstructed from descriptions, because its authors' code is not public."""
    authors: Mapping[str, Any] = field(default_factory=dict)
    """The authors' options if they differ from the preset: how the numbers are scaled."""
    note: str = ""
    """A remark below the methods table."""

    @property
    def streaming(self) -> bool:
        """Whether the statistics are learned from the stream; an offline method must be fitted before use."""
        return not self.cls.offline

    @property
    def place(self) -> tuple[Any, ...]:
        family = FAMILIES.index(self.family) if self.family in FAMILIES else len(FAMILIES)
        return family, self.family, self.order, self.name

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "streaming": self.streaming}


METHODS = Registry("method", MethodEntry)
"""Name → entry, ordered by family."""

register_method = METHODS.register
"""Decorate a class to register it as a method; the arguments are the fields of `MethodEntry`.

>>> @register_method("double", title="the number, twice", family="neural", continuous=True)
... class Double(NumericalEmbedding):
...     def encode(self, values, place, context):
...         return 2 * values.unsqueeze(-1).expand(-1, -1, self.dim)
>>> build_embedding("double", num_features=3)
Double(num_features=3, dim=16)
>>> del METHODS["double"]
"""


def build_embedding(method: str, num_features: int, dim: int = 16, **options: Any) -> NumericalEmbedding:
    """Build a method by its name in `METHODS`; given options take precedence over its preset.

    >>> build_embedding("efd", num_features=3, num_bins=20)
    EFD(num_features=3, dim=16, num_bins=20)
    """
    return METHODS.find(method).build(num_features, dim, **options)
