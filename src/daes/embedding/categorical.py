"""Categories → vectors: one table for all fields, with hashed ids or a vocabulary learned from the stream."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from daes import native
from daes.choices import check_choice
from daes.embedding import kernels
from daes.embedding.processes import refuse_several_processes
from daes.embedding.vocabulary import FIRST, MISSING, UNSEEN, StreamVocabulary

Mode = Literal["hash", "vocabulary"]


class CategoricalEmbedding(nn.Module):
    """Embed the categorical fields of a batch.

    Every field has `size` rows for ids, preceded by one for a missing value and one for unseen ids. All fields share
    one `weight`, so that one look-up is enough:

        row = offset_f + 0                      the value is missing (id 0)
        row = offset_f + 2 + id mod size_f      mode="hash"
        row = offset_f + 2 + index of the id    mode="vocabulary", the id has its own row
        row = offset_f + 1                      mode="vocabulary", any other id

    In `mode="vocabulary"` a forward in `train()` first observes the ids, so that an id seen `min_count` times has its
    own row from that batch on (`StreamVocabulary` describes the counting); in `eval()` nothing changes. To continue
    training with a fixed vocabulary, call `embedding.vocabulary.eval()` after `train()`.

    **Shape.** ids (B, p) int64 as in `Batch.categorical`, 0 = missing → (B, p, d).

    Args:
        sizes: number of rows for ids of each field: a mapping of field names, which are used in error messages, or a
            sequence.
        dim: dimension d of an embedding.
        mode: "hash" or "vocabulary".
        min_count: number of occurrences after which an id gets a row (vocabulary).
        counters: counters for candidate ids, see `StreamVocabulary`; 3 · counters bytes per field (vocabulary).
        strict: whether an unseen id in `eval()` is a ValueError instead of the unseen row (vocabulary). An exported
            model cannot raise.
        sparse: whether gradients of `weight` are sparse, for large tables and `torch.optim.SparseAdam`.
        init_std: rows are initialised from N(0, init_std²).
        weight: the rows of all fields, instead of random ones; they are not copied.

    >>> embedding = CategoricalEmbedding({"city": 100, "device": 10}, dim=4)
    >>> embedding(torch.tensor([[7, 0], [107, 3]])).shape
    torch.Size([2, 2, 4])
    >>> embedding.rows(torch.tensor([[7, 0], [107, 3]]))
    tensor([[  9, 102],
            [  9, 107]])
    """

    sharded: ClassVar[bool] = False
    """Whether all processes must call `look_up` together, since each has a part of the table."""
    weight: nn.Parameter
    _sizes: Tensor
    _offsets: Tensor

    def __init__(
        self,
        sizes: Sequence[int] | Mapping[str, int],
        dim: int,
        *,
        mode: Mode = "hash",
        min_count: int = 5,
        counters: int = 2**18,
        strict: bool = False,
        sparse: bool = False,
        init_std: float = 0.01,
        weight: Tensor | None = None,
    ) -> None:
        super().__init__()
        by_name = sizes if isinstance(sizes, Mapping) else {f"field {i}": size for i, size in enumerate(sizes)}
        self.names, self.sizes = tuple(by_name), tuple(by_name.values())
        for name, size in by_name.items():
            if not isinstance(size, int) or size <= 0:
                raise ValueError(f"sizes must be positive integers; {name} has size {size!r}")
        if dim <= 0:
            raise ValueError(f"dim must be positive, got {dim}")
        check_choice("mode", mode, get_args(Mode))
        if strict and mode == "hash":
            raise ValueError('strict needs mode="vocabulary", since hashing has no unseen ids, got mode="hash"')
        if not 0 <= init_std < math.inf:
            raise ValueError(f"init_std must be finite and not negative, got {init_std}")
        self.dim = dim
        self.mode = mode
        self.strict = strict
        self.sparse = sparse
        self.init_std = init_std
        self.vocabulary = (
            StreamVocabulary(self.sizes, min_count=min_count, counters=counters) if mode == "vocabulary" else None
        )
        self.register_buffer("_sizes", torch.tensor(self.sizes, dtype=torch.int64), persistent=False)
        self.register_buffer("_offsets", torch.tensor(self.offsets, dtype=torch.int64), persistent=False)
        self._slots: Tensor | None = None  # scratch memory of compiled look-ups
        if weight is None:
            self._make_table()
        elif weight.shape != (self.num_rows, dim):
            raise ValueError(f"weight must have shape ({self.num_rows}, {dim}), got {tuple(weight.shape)}")
        else:
            self.weight = nn.Parameter(weight)

    def _make_table(self) -> None:
        self.weight = nn.Parameter(torch.empty(self.num_rows, self.dim))
        self.reset_parameters()

    @property
    def num_fields(self) -> int:
        """p, the number of fields."""
        return len(self.sizes)

    @property
    def num_rows(self) -> int:
        """The rows of the table, of all fields."""
        return sum(FIRST + size for size in self.sizes)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments apart from `sizes` and `dim` that make such a table, as plain values."""
        options: dict[str, Any] = {"mode": self.mode, "sparse": self.sparse, "init_std": self.init_std}
        if self.vocabulary is not None:
            options |= {"strict": self.strict, "min_count": self.vocabulary.min_count}
            options["counters"] = self.vocabulary.counters
        return options

    def reset_parameters(self) -> None:
        """Initialise the rows again; a vocabulary does not change."""
        nn.init.normal_(self.weight, std=self.init_std)

    @property
    def offsets(self) -> list[int]:
        """The first row of each field."""
        return list(accumulate((FIRST + size for size in self.sizes[:-1]), initial=0)) if self.sizes else []

    def forward(self, ids: Tensor) -> Tensor:
        return self.look_up(self.find(ids))

    def find(self, ids: Tensor) -> Tensor:
        """The row of `weight` of each id, (B, p) → (B, p); in `train()` a vocabulary observes the ids first."""
        if self.vocabulary is not None and self.vocabulary.training:
            refuse_several_processes("the vocabularies", "use hashed tables, or fix the vocabulary before the start")
            self.observe(ids)
        return self.rows(ids)

    def look_up(self, rows: Tensor) -> Tensor:
        """The vectors of these rows, (B, p) → (B, p, d)."""
        return self._look_up(self.weight, rows)

    def _look_up(self, weight: Tensor, rows: Tensor) -> Tensor:
        if self.sparse and native.serves(rows, weight) and _trusted(weight, rows):
            if self._slots is None or len(self._slots) != len(weight):
                self._slots = torch.full((len(weight),), -1, dtype=torch.int32)
            return native.look_up(weight, rows, self._slots)
        if not self.sparse and kernels.usable(weight, rows):
            found: Tensor = kernels.look_up(weight, rows)
            return found
        return F.embedding(rows, weight, sparse=self.sparse)

    def observe(self, ids: Tensor) -> None:
        """Update the vocabulary, if there is one, with ids (B, p)."""
        self._check(ids)
        if self.vocabulary is not None:
            self.vocabulary.observe(ids)

    def rows(self, ids: Tensor) -> Tensor:
        """The current row of `weight` of each id, (B, p) → (B, p); nothing is observed."""
        self._check(ids)
        if self.vocabulary is None:
            if native.serves(ids, self._sizes):
                return native.hash_rows(ids, self._sizes, self._offsets)
            # torch's remainder and ONNX's Mod both have the sign of the divisor, so a row is never negative.
            found = torch.remainder(ids, self._sizes) + (self._offsets + FIRST)
            return torch.where(ids == 0, self._offsets + MISSING, found)
        row: Tensor = self.vocabulary(ids)
        if self.strict and not self.training and not torch.compiler.is_compiling():
            self._refuse_unseen(ids, row)
        return row + self._offsets

    def extra_repr(self) -> str:
        return f"fields={self.num_fields}, rows={self.num_rows}, dim={self.dim}, mode={self.mode!r}"

    def _check(self, ids: Tensor) -> None:
        if not isinstance(ids, Tensor):
            raise TypeError(f"ids must be a tensor, got {type(ids).__name__}")
        if ids.dtype != torch.int64 or ids.ndim != 2 or ids.shape[1] != self.num_fields:
            raise ValueError(
                f"ids must be int64 of shape (B, {self.num_fields}), got {ids.dtype} of shape {tuple(ids.shape)}"
            )

    def _refuse_unseen(self, ids: Tensor, row: Tensor) -> None:
        unseen = row == UNSEEN
        if unseen.any():
            found = [
                f"{name} ({len(torch.unique(ids[unseen[:, field], field]))})"
                for field, name in enumerate(self.names)
                if unseen[:, field].any()
            ]
            raise ValueError(f"strict allows only ids of the vocabulary; there are unseen ids in {', '.join(found)}")


def suggest_sizes(
    cardinalities: Mapping[str, int],
    *,
    mode: Mode = "hash",
    growth: float = 2.0,
    collisions: float = 0.2,
    maximum: int = 1_000_000,
) -> dict[str, int]:
    """Sizes for `CategoricalEmbedding` from the numbers of distinct ids in a sample of the data.

    For n = growth · cardinality ids the size is n with a vocabulary. With hashing it is the smallest at which an id
    shares its row with probability at most `collisions`: 1 − (1 − 1/size)^(n−1) ≤ collisions.

    Args:
        cardinalities: number of distinct ids by field.
        mode: "hash" or "vocabulary".
        growth: number of ids in the whole stream over that in the sample.
        collisions: probability, within (0, 1), that an id shares its row (hash).
        maximum: largest size to suggest.

    >>> suggest_sizes({"city": 1000, "device": 5})
    {'city': 8959, 'device': 41}
    >>> suggest_sizes({"city": 1000, "device": 5}, mode="vocabulary")
    {'city': 2000, 'device': 10}
    """
    check_choice("mode", mode, get_args(Mode))
    if not 0 < growth < math.inf:
        raise ValueError(f"growth must be positive and finite, got {growth}")
    if not 0 < collisions < 1:
        raise ValueError(f"collisions must lie within (0, 1), got {collisions}")
    if maximum <= 0:
        raise ValueError(f"maximum must be positive, got {maximum}")
    sizes = {}
    for field, cardinality in cardinalities.items():
        if cardinality < 0:
            raise ValueError(f"cardinalities must not be negative; {field} has {cardinality}")
        count = max(math.ceil(growth * cardinality), 1)
        if mode == "hash" and count > 1:
            count = math.ceil(1 / -math.expm1(math.log1p(-collisions) / (count - 1)))
        sizes[field] = min(count, maximum)
    return sizes


def _trusted(weight: Tensor, rows: Tensor) -> bool:
    """Whether a compiled loop, which checks nothing, may look up these rows."""
    return (weight.dtype, rows.dtype) == (torch.float32, torch.int64) and native.within(rows, len(weight))
