"""The arguments of a `CTRModel`: checked, and as they are saved."""

import operator
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from typing import Any

from torch import nn

from daes.backbone import BACKBONES, Backbone
from daes.distribution.base import check_positive
from daes.evidence import Evidence
from daes.registry import Configurable, Registry
from daes.stream.batch import Batch
from daes.stream.schema import Schema

DEFAULT_SIZE = 10_000
"""The default number of rows of a categorical field's table."""


def takes_plain(backbone: str | Backbone) -> bool:
    """Whether a backbone has plain inputs beside the vectors."""
    return backbone.plain_dim > 0 if isinstance(backbone, Backbone) else BACKBONES.find(backbone).takes_plain


def evidence_arguments(evidence: Evidence | Mapping[str, Any] | bool | None) -> dict[str, Any] | None:
    """All arguments of the evidence, as they are saved; None without evidence."""
    if evidence is None or evidence is False:
        return None
    if evidence is True:
        evidence = Evidence()
    if not isinstance(evidence, Evidence | Mapping):
        raise TypeError(f"evidence must be an Evidence, its arguments, True, False or None, got {evidence!r}")
    return asdict(evidence if isinstance(evidence, Evidence) else Evidence(**evidence))


def common_dim(dim: int | None, *parts: object) -> int:
    """The dimension that was given and that the modules among the parts have."""
    for part in parts:
        own = getattr(part, "dim", dim)
        if dim is not None and own != dim:
            raise ValueError(f"dim must be the same for all parts, got {dim} and {own} in {type(part).__name__}")
        dim = own
    return 16 if dim is None else dim


def description(
    registry: Registry[Any], part: str | Configurable, options: Mapping[str, Any] | None
) -> tuple[str, dict[str, Any]]:
    """Name and options of a part as they are saved: with lists for tuples, as JSON has them."""
    if isinstance(part, str):
        name, spelled = part, {**registry.find(part).preset, **(options or {})}
    elif not isinstance(part, Configurable):
        raise TypeError(f"{registry.kind} must be a name or a module, got {part!r}")
    elif options:
        raise ValueError(f"options of the {registry.kind} must be given to the module itself, got {dict(options)}")
    else:
        name, spelled = registry.describe(part)
    return name, {key: list(value) if isinstance(value, tuple) else deepcopy(value) for key, value in spelled.items()}


def check_sizes(what: str, module: nn.Module, **expected: int) -> None:
    """Raise a ValueError unless the module has these sizes."""
    for name, size in expected.items():
        if getattr(module, name) != size:
            raise ValueError(f"{what} must have {name}={size}, got {name}={getattr(module, name)}")


def check_columns(schema: Schema, batch: Batch) -> None:
    """Raise a ValueError unless the batch has as many columns as the schema."""
    for part in ("numerical", "categorical"):
        names, found = getattr(schema, part), getattr(batch, part).shape[1]
        if found != len(names):
            raise ValueError(f"batch must have {len(names)} {part} columns ({', '.join(names) or 'none'}), got {found}")


def table_sizes(schema: Schema, sizes: int | Mapping[str, int]) -> dict[str, int]:
    """The rows of every categorical field's table, by name."""
    given = sizes if isinstance(sizes, Mapping) else dict.fromkeys(schema.categorical, sizes)
    if unknown := [name for name in given if name not in schema.categorical]:
        raise ValueError(f"sizes must name categorical columns of the schema, got {', '.join(unknown)}")
    found = {}
    for name in schema.categorical:
        size = given.get(name, DEFAULT_SIZE)
        try:
            found[name] = operator.index(size)
        except TypeError:
            raise TypeError(f"sizes must be whole numbers; {name} has size {size!r}") from None
    return found


def context_names(
    schema: Schema, context: str | Sequence[str] | None, sizes: Mapping[str, int], count: int
) -> tuple[str, ...]:
    """The names of the context fields; "smallest" are the `count` fields with the smallest tables."""
    if context is None:
        return ()
    if context == "smallest":
        check_positive(num_context=count)
        return tuple(sorted(schema.categorical, key=lambda name: sizes[name])[:count])
    names = (context,) if isinstance(context, str) else tuple(context)
    unknown = [name for name in names if name not in schema.categorical]
    if unknown:
        hint = ' ("ranked" needs the rows of CTRModel.from_sample)' if context == "ranked" else ""
        raise ValueError(
            f"context must name categorical columns of the schema ({', '.join(schema.categorical) or 'none'}), "
            f"got {', '.join(map(str, unknown))}{hint}"
        )
    if len(set(names)) < len(names):
        raise ValueError(f"context must name each column once, got {', '.join(names)}")
    return names
