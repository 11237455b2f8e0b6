"""Rows that several processes count together, here threads, against one that counts by itself: bit for bit."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from time import sleep

import pytest
import torch

from daes import native
from daes.evidence import Evidence, EvidenceInputs
from daes.evidence.division import Division

pytestmark = pytest.mark.skipif(native._library is None, reason="no compiled loops")

OFFSETS, TABLE_ROWS = [0, 6, 14], 400
OPTIONS = {"pairs": 3, "triples": 2, "bins": 8, "pair_bins": 4, "pair_cells": 61, "choose_after": 64, "sample_rows": 40}


def stream(rows, seed=0):
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(rows, 2, generator=generator).exp()
    numbers[torch.rand(rows, generator=generator) < 0.4, 1] = 0.0  # ties
    numbers[torch.rand(rows, 2, generator=generator) < 0.1] = torch.nan
    numbers[torch.rand(rows, 2, generator=generator) < 0.02] = torch.inf
    ids = torch.stack([torch.randint(size, (rows,), generator=generator) for size in (6, 8, 386)], 1)
    logits = torch.randn(rows, generator=generator)
    labels = (torch.rand(rows, generator=generator) < torch.sigmoid(logits + ids[:, 0] - 3)).float()
    return numbers, ids + torch.tensor(OFFSETS), labels, logits


def make(**options):
    return EvidenceInputs(Evidence(**{**OPTIONS, **options}), 2, OFFSETS, TABLE_ROWS)


def _empty(count, like):
    return like.new_empty(count)


def together(modules, batches, columns, slow):
    """Let each module count as one process of several, all at a time."""
    count = len(modules)
    barrier, told = Barrier(count), [[None] * count, [None] * count]

    def work(rank):
        turn = 0

        def gather(rows, sizes):
            nonlocal turn
            turn = 1 - turn
            told[turn][rank] = rows.clone()
            barrier.wait()
            assert [len(one) for one in told[turn]] == sizes
            return list(told[turn])

        def meet():
            sleep(0.003 * (rank == slow))
            barrier.wait()

        module = modules[rank]
        division = Division(rank, count, columns(rank), meet, _empty, gather)
        shared = module.divide(division)
        for one, common in zip(shared, everything, strict=True):
            one.data = common
        for numbers, rows, labels, logits in batches:
            start, stop = division.part_of(len(labels))
            scores = None if logits is None else logits[start:stop]
            module.update_together(numbers[start:stop], rows[start:stop], labels, scores)
            barrier.wait()
            if rank == 0 and module.combinations is not None:
                module.combinations.weight.data.neg_()  # chosen fields do not stay
            barrier.wait()

    unused = Division(0, count, (0, 1), print, _empty, lambda *_: [])
    everything = [one.clone() for one in modules[0].divide(unused)]
    if modules[0].combinations is not None:
        for one in modules[1:]:
            one.combinations.weight.data = modules[0].combinations.weight.data
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))


@pytest.mark.parametrize("slow", [None, 0, 1])
@pytest.mark.parametrize(
    ("count", "options"),
    [
        (2, {}),
        (3, {}),
        (5, {"sample_rows": 3}),
        (3, {"recent": None}),
        (3, {"pairs": 0}),
        (3, {"numbers": False}),
        (3, {"categories": False}),
    ],
    ids=["two", "three", "rows for one slot", "no recent errors", "no pairs", "no numbers", "no categories"],
)
def test_the_same_as_by_one(count, options, slow):
    sizes = [2, 1, 30, 3, 64, 200, 7, 100, 500]
    batches = list(zip(*(one.split(sizes) for one in stream(sum(sizes))), strict=True))
    batches[0] = (*batches[0][:3], None)  # observed before they were scored
    alone, modules = make(**options), [make(**options) for _ in range(count)]
    for batch in batches:
        alone.update(*batch)
        if alone.combinations is not None:
            alone.combinations.weight.data.neg_()
    together(modules, batches, lambda rank: ((rank - 1) % count, count - 1), slow)
    expected = alone.state_dict()
    for module in modules:
        found = module.state_dict()
        assert found.keys() == expected.keys()
        for name, tensor in found.items():
            torch.testing.assert_close(tensor, expected[name], rtol=0, atol=0, equal_nan=True, msg=name)
    if alone.combinations is not None and options.get("categories", True) and options.get("sample_rows", 40) > 3:
        assert (alone.combinations.fields[:3, 0] >= 0).any()  # something was chosen


def test_counting_that_cannot_be_divided():
    division = Division(0, 2, (0, 1), print, _empty, lambda *_: [])
    assert make(half_life=100.0).divide(division) == []
    module = make()
    assert module.divide(division)
    assert module.division is division
    with pytest.raises(ValueError, match="divided among several processes, which call update_together"):
        module.update(*stream(10))
    assert module.divide(None) == []
    assert module.division is None
    assert make().freeze().divide(division) == []
