"""Scores of the batches that several processes have learned from, exchanged between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daes.evidence.division import part_of
from daes.training.processes.group import Processes


@dataclass(frozen=True)
class ExchangedScores:
    """What all processes have sent each other.

    Args:
        logits: of all rows, in the order of the stream.
        learned: of each batch, whether all processes have learned from it.
        random: the random states of all processes; only in the first one, which writes checkpoints.
    """

    logits: NDArray[np.float32]
    learned: NDArray[np.bool_]
    random: list[dict[str, Tensor]]


def exchange_scores(
    processes: Processes,
    logits: Sequence[NDArray[np.float32]],
    learned: Sequence[bool],
    lengths: Sequence[int],
    random: Mapping[str, Tensor],
) -> ExchangedScores:
    """Exchange the scores of batches; called in all processes.

    They are sent as bytes, in one message each: packing objects takes longer.

    Args:
        logits: of this process's part of each batch.
        learned: whether this process has learned from it.
        lengths: of the batches, with the rows of all processes.
        random: the random states of this process.
    """
    states = {name: state.numpy() for name, state in random.items()}
    own = [one.view(np.uint8) for one in (*logits, np.array(learned, bool), *states.values())]
    parts = (part_of(0, length, rank, processes.count) for rank in range(processes.count) for length in lengths)
    counts = np.array([stop - start for start, stop in parts]).reshape(processes.count, -1).sum(1).tolist()
    ends = np.cumsum([len(learned), *map(len, states.values())]).tolist()
    given = processes.gather_rows(torch.from_numpy(np.concatenate(own)), [4 * count + ends[-1] for count in counts])
    scores = [one.numpy()[: 4 * count].view(np.float32) for count, one in zip(counts, given, strict=True)]
    rests = [one.numpy()[4 * count :] for count, one in zip(counts, given, strict=True)]
    by_all = np.all([one[: len(learned)] for one in rests], axis=0)
    kept = [
        {
            name: torch.from_numpy(one[start:stop].copy())
            for name, start, stop in zip(states, ends[:-1], ends[1:], strict=True)
        }
        for one in (rests if processes.first else [])
    ]
    return ExchangedScores(in_order(scores, lengths), by_all, kept)


def in_order(parts: Sequence[NDArray[np.float32]], lengths: Sequence[int]) -> NDArray[np.float32]:
    """The scores of batches of these lengths, put together from the parts of all processes."""
    found = np.empty(sum(lengths), np.float32)
    for rank, own in enumerate(parts):
        start = taken = 0
        for length in lengths:
            first, last = part_of(start, start + length, rank, len(parts))
            found[first:last] = own[taken : taken + last - first]
            start, taken = start + length, taken + last - first
    return found


def in_finite_batches(logits: NDArray[np.float32], lengths: Sequence[int]) -> NDArray[np.bool_] | slice:
    """Which rows are of batches, of these lengths, all of whose scores are finite.

    >>> in_finite_batches(np.array([0, np.inf, 1, 2], np.float32), [2, 1, 1])
    array([False, False,  True,  True])
    """
    finite = np.isfinite(logits)
    if finite.all():
        return slice(None)
    numbers = np.repeat(np.arange(len(lengths)), lengths)
    usable: NDArray[np.bool_] = ~np.isin(numbers, numbers[~finite])
    return usable
