"""Errors of a model per combination of two or three values, and the choice of the fields to combine."""

from collections.abc import Callable, Sequence
from math import comb
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from daes import native
from daes.embedding.precision import KeepsPrecision
from daes.evidence.division import Division
from daes.evidence.recent import GRAIN
from daes.native import arrays

Fields = tuple[int, ...]
Places = NDArray[np.int64]
_PRIME = 1_000_003
_NONE = -1
_MOST_FIELDS = 40
"""Of more fields only the most informative ones are combined: the number of pairs grows with their square."""
_MOST_ROWS = 8_192
"""Largest number of rows by which fields are chosen."""
_MOST_CELLS = 0.5
"""Fields are not combined if more cells are used per row: most combinations would have been seen once."""


class Combinations(KeepsPrecision):
    """The log odds that the rest of a model does not explain, per combination of the values of two or three fields.

    Each of K chosen pairs and triples of fields has cells for the combinations of their values; where there are more
    combinations than cells, they share cells by hashing. With y the label of a row that had the combination, and p the
    model's score of the row before it was learned from, a cell has

        S = Σ (y − p),    V = Σ p·(1 − p),    z = S / (V + a·p̄·(1 − p̄))

    z is one step of Newton's method from the scores towards the labels, shrunk as if a rows of average spread
    p̄·(1 − p̄) had been scored correctly; 0 for a combination never seen. Σ w·z is added to the logit. The weights w
    are learned and start at 0.1, or at 3/K with more than 30 combinations. As p includes that sum, redundant fields
    share it.

    **Shape.** forward: values (B, fields), whole numbers from 0 on → z (B, K). Buffers: `fields` (K, 3), −1 for none;
    `errors` (K, cells, 2), S and V, or (K, cells, 1), z, once frozen. Parameter: `weight` (K,).

    Args:
        num_pairs: pairs of fields.
        num_triples: triples of fields.
        cells: cells of each.
        strength: a.

    >>> values, labels = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]] * 300), torch.tensor([0.0, 1.0, 1.0, 0.0] * 300)
    >>> combined = Combinations(num_pairs=1, num_triples=0, cells=101, strength=20.0)
    >>> combined.choose(values, labels, logits=torch.zeros(1200), rows=1200)
    >>> combined(values, spread=0.25)[:4].sign().flatten().tolist()  # exclusive or: no field by itself says anything
    [-1.0, 1.0, 1.0, -1.0]
    """

    fields: Tensor
    errors: Tensor

    def __init__(self, num_pairs: int, num_triples: int, cells: int, strength: float) -> None:
        super().__init__()
        self.num_pairs = num_pairs
        self.strength = strength
        count = num_pairs + num_triples
        self._start = min(0.1, 3 / max(count, 1))
        self.weight = nn.Parameter(torch.full((count,), self._start))
        self.register_buffer("fields", torch.full((count, 3), _NONE, dtype=torch.int64))
        self.register_buffer("errors", torch.zeros(count, cells, 2, dtype=torch.float64))
        self._division: Division | None = None
        self._ratings = torch.empty(0, dtype=torch.float64)

    def divide(self, division: Division | None) -> list[Tensor]:
        """Let several processes `choose` and `read` together, which all of them call; None for each by itself again.

        Returns the tensors that they change, which the caller places in memory that all of them share.
        """
        self._division = division
        most = max(comb(_MOST_FIELDS, 2), _MOST_FIELDS * self.num_pairs)
        self._ratings = torch.empty(0 if division is None else most, dtype=torch.float64)
        return [] if division is None else [self.errors, self._ratings]

    @property
    def are_chosen(self) -> bool:
        """Whether there are any fields to combine; reading it waits for a device."""
        return bool((self.fields[:, 0] != _NONE).any())

    def places(self, values: Tensor) -> Tensor:
        """The cell of each combination, (B, K), counted through all of them."""
        count, cells, _ = self.errors.shape
        padded = nn.functional.pad(values, (0, 1))  # field −1 is 0 in every row
        first, second, third = (padded[:, one] for one in self.fields.unbind(1))
        found: Tensor = _hash(_hash(first, second, cells), third, cells)
        return found + torch.arange(count, device=values.device) * cells

    def matrix(self, num_fields: int) -> Tensor:
        """Whole numbers (fields, K) whose product with values (B, fields) is, modulo the cells, the cell in each of K.

        The hash of three values u, v, w is u·P² + v·P + w modulo the cells, with P the prime.
        """
        cells = self.errors.shape[1]
        found = self.fields.new_zeros(num_fields + 1, len(self.fields))  # field −1 is 0 in every row
        for place, power in enumerate((_PRIME**2, _PRIME, 1)):
            column = self.fields[:, place].remainder(num_fields + 1).unsqueeze(0)
            found.scatter_add_(0, column, torch.full_like(column, power % cells))
        return found[:-1]

    @torch.no_grad()
    def forward(self, values: Tensor, spread: Tensor | float) -> Tensor:
        """z, given p̄·(1 − p̄)."""
        return nn.functional.embedding(self.places(values), self.odds(spread)).squeeze(-1).float()

    @torch.no_grad()
    def odds(self, spread: Tensor | float) -> Tensor:
        """z of every cell, (K·cells, 1), given p̄·(1 − p̄)."""
        if self.errors.shape[2] == 1:
            return self.errors.flatten(0, 1)
        error, variance = self.errors.flatten(0, 1).unbind(1)
        found: Tensor = (error / (variance + self.strength * spread)).unsqueeze(1)
        return found

    @torch.no_grad()
    def update(self, values: Tensor, labels: Tensor, logits: Tensor) -> None:
        """Add the errors of scored rows: values (B, fields), labels (B,) and logits (B,)."""
        self._add(self.errors, values, labels, logits, 1.0, self.fields[:, 0] != _NONE)

    def _add(self, to: Tensor, values: Tensor, labels: Tensor, logits: Tensor, times: float, which: Tensor) -> None:
        """Add the errors of rows, `times` each, to those of some of the combinations, `which` (K,) of bool."""
        scores = torch.sigmoid(logits.double())
        errors = torch.stack([labels - scores, scores * (1 - scores)], 1) * times
        each = (torch.round(errors / GRAIN) * GRAIN).unsqueeze(1) * which.unsqueeze(1)
        to.view(-1, 2).index_add_(0, self.places(values).flatten(), each.reshape(-1, 2))

    @torch.no_grad()
    def choose(
        self,
        values: Tensor,
        labels: Tensor,
        logits: Tensor,
        rows: float,
        strengths: Callable[[], Sequence[float]] | None = None,
    ) -> None:
        """Choose fields by a sample of scored rows: those whose combinations stray farthest from the scores,

            Σ_cells (S² − V) / (V + 1)

        which is 0 on average where the scores are right. Fields that were chosen before stay as long as their weight is
        positive: the scores have what they say already. New ones begin with the errors of the sample.

        **Shape.** values (N, fields), labels and logits (N,).

        Args:
            rows: how many rows the sample stands for.
            strengths: says how informative each field is; called if there are too many to combine all.
        """
        some = slice(None, None, -(-len(labels) // _MOST_ROWS))
        scores = torch.sigmoid(logits[some].double())
        columns, error = self._remainders(values[some]).cpu().numpy(), (labels[some] - scores).cpu().numpy()
        variance = (scores * (1 - scores)).cpu().numpy()
        before = [tuple(one for one in fields if one != _NONE) for fields in self.fields.tolist()]
        kept = {fields for fields, weight in zip(before, self.weight.tolist(), strict=True) if fields and weight > 0}

        def best(candidates: Places, stay: set[Fields], count: int) -> list[Fields]:
            known = candidates[~(candidates[:, None] == _as_places(sorted(stay))).all(2).any(1)]
            rated = self._rate(columns, error, variance, known)
            order = [place for place in np.argsort(-rated, kind="stable")[:count] if rated[place] > -np.inf]
            found = [tuple(one for one in fields if one != _NONE) for fields in known[order].tolist()]
            return [*sorted(stay), *found][:count]

        fields = np.arange(values.shape[1])
        if strengths is not None and len(fields) > _MOST_FIELDS:
            known = strengths()
            fields = np.array(sorted(sorted(fields.tolist(), key=lambda one: -known[one])[:_MOST_FIELDS]))
        pairs = best(_pairs(fields), {one for one in kept if len(one) == 2}, self.num_pairs)
        triples = best(_wider(pairs, fields), {one for one in kept if len(one) == 3}, len(before) - self.num_pairs)
        fresh = self._place(before, pairs, range(self.num_pairs))
        fresh += self._place(before, triples, range(self.num_pairs, len(before)))
        self.read(values, labels, logits, rows, fresh)

    def _remainders(self, values: Tensor) -> Tensor:
        """Values, whose cells are those of their remainders, as int32: larger ones would not fit."""
        return values if values.dtype == torch.int32 else values.remainder(self.errors.shape[1]).int()

    def _rate(
        self,
        columns: NDArray[np.int32],
        error: NDArray[np.float64],
        variance: NDArray[np.float64],
        candidates: Places,
    ) -> NDArray[np.float64]:
        """`rate`; processes that share the work rate some of the candidates each."""
        division, cells = self._division, self.errors.shape[1]
        threads = _threads(division)
        if division is None:
            return rate(columns, error, variance, candidates, cells, threads)
        own = slice(*division.part_of(len(candidates)))
        rated = rate(columns, error, variance, candidates[own], cells, threads)
        self._ratings[own] = torch.from_numpy(rated)
        division.meet()
        found: NDArray[np.float64] = self._ratings[: len(candidates)].numpy().copy()
        division.meet()  # all have read them
        return found

    def _place(self, before: Sequence[Fields], chosen: Sequence[Fields], places: range) -> list[int]:
        """Put chosen fields that are new in the places of those that were there before and are not chosen."""
        free = [place for place in places if before[place] not in chosen]
        new = [one for one in chosen if one not in before]
        for place, one in zip(free, new, strict=False):
            self.fields[place] = torch.tensor([*one, *[_NONE] * (3 - len(one))])
            self.weight[place] = self._start
        return free[: len(new)]

    @torch.no_grad()
    def effects(self, spread: Tensor | float) -> Tensor:
        """How much each combination moves logits, (K,): |w| times the root mean square of z, by V until frozen."""
        odds = self.odds(spread).view(self.errors.shape[:2])
        views = (odds != 0).to(odds) if self.errors.shape[2] == 1 else self.errors[..., 1]
        return self.weight.abs() * ((views * odds.square()).sum(1) / views.sum(1).clamp(min=1e-9)).sqrt()

    def reading(self, fields: range) -> list[int]:
        """The combinations that have one of these fields."""
        return [place for place, one in enumerate(self.fields.tolist()) if any(field in fields for field in one)]

    @torch.no_grad()
    def read(self, values: Tensor, labels: Tensor, logits: Tensor, rows: float, which: Sequence[int]) -> None:
        """Set the errors of these combinations to those of a sample of scored rows that stands for `rows` rows."""
        if self._division is not None:
            which = which[self._division.rank :: self._division.count]
        if not which:
            return
        times = rows / max(len(labels), 1)
        clicked, scores = labels.float(), logits.float()
        if native.serves(clicked, scores, self.fields, self.errors):
            given = self._remainders(values).numpy(), clicked.numpy(), scores.numpy()
            chosen, threads = (self.fields.numpy(), np.array(which, np.int64)), _threads(self._division)
            arrays.read_errors(*given, times, *chosen, self.errors.numpy(), _PRIME, threads)
            return
        found = torch.zeros_like(self.errors)
        only = torch.zeros(len(self.fields), dtype=torch.bool, device=self.fields.device)
        only[list(which)] = True
        self._add(found, values, labels, logits, times, only)
        self.errors[list(which)] = found[list(which)]

    def reset(self) -> None:
        """Drop everything except the weights."""
        self.fields.fill_(_NONE)
        self.errors.zero_()

    @torch.no_grad()
    def freeze(self, spread: Tensor | float) -> Self:
        """Keep only z, given p̄·(1 − p̄): no errors are added from then on."""
        self.errors = self.odds(spread).float().view(*self.errors.shape[:2], 1)
        return self

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *arguments: Any, **options: Any) -> None:
        errors = state_dict.get(f"{prefix}errors")
        if errors is not None and errors.shape[-1] == 1:
            self.errors = torch.zeros(*self.errors.shape[:2], 1, device=self.errors.device)  # a frozen state freezes
        super()._load_from_state_dict(state_dict, prefix, *arguments, **options)

    def extra_repr(self) -> str:
        return f"pairs={self.num_pairs}, triples={len(self.fields) - self.num_pairs}"


def rate(
    values: NDArray[np.int32],
    error: NDArray[np.float64],
    variance: NDArray[np.float64],
    candidates: Places,
    cells: int,
    threads: int = 1,
) -> NDArray[np.float64]:
    """Rating of each candidate's fields: Σ_cells (S² − V) / (V + 1), or −∞ for too many cells.

    **Shape.** values (N, fields), error and variance (N,), candidates (C, 3), pairs with −1 → (C,).
    """
    if native.serves():
        return arrays.rate(values, error, variance, candidates, cells, _PRIME, _MOST_CELLS * len(error), threads)
    found = np.full(len(candidates), -np.inf)
    padded = np.pad(values.astype(np.int64), ((0, 0), (0, 1)))
    for place, (first, second, third) in enumerate(padded[:, one].T for one in candidates):
        cell = _hash(_hash(first, second, cells), third, cells)
        used = np.flatnonzero(np.bincount(cell, minlength=cells))
        if used.size <= _MOST_CELLS * len(error):
            s, v = (np.bincount(cell, one, cells)[used] for one in (error, variance))
            found[place] = ((s * s - v) / (v + 1)).sum()
    return found


def _hash(first: Any, second: Any, cells: int) -> Any:
    return (first * _PRIME + second) % cells


def _threads(division: Division | None) -> int:
    """Two where torch has one: a step has to wait for this, and its helper has nothing to do meanwhile.

    Processes that share the work have no core for a second one.
    """
    return max(2 if division is None else 1, torch.get_num_threads())


def _as_places(chosen: Sequence[Fields]) -> Places:
    """Pairs and triples of fields as an array (C, 3), −1 for none."""
    return np.array([[*one, *[_NONE] * (3 - len(one))] for one in chosen], np.int64).reshape(-1, 3)


def _pairs(fields: Places) -> Places:
    """All pairs of ascending fields, (C, 3)."""
    first, second = np.triu_indices(len(fields), 1)
    return np.stack([fields[first], fields[second], np.full(len(first), _NONE)], 1)


def _wider(pairs: Sequence[Fields], fields: Places) -> Places:
    """All triples of fields that contain one of the pairs, (C, 3)."""
    given = _as_places(pairs)[:, :2]
    found = np.stack([*given.repeat(len(fields), 0).T, np.tile(fields, len(given))], 1)
    found = found[(found[:, :2] != found[:, 2:]).all(1)]
    return np.unique(np.sort(found, 1), axis=0)
