"""The oracle is the plain version, on the CPU."""

import pytest
import torch

from daes.embedding import kernels
from daes.evidence import Evidence, EvidenceInputs
from daes.evidence.recent import GRAIN

pytest.importorskip("triton")

HALF_LIFE = 30.1  # not a float32


def made(q=3, p=2, half_life=HALF_LIFE, **options):
    """Evidence that has counted some rows, so that bins are cut; ids are few."""
    counted = EvidenceInputs(
        Evidence(bins=6, pair_bins=3, sample_rows=200, recent=half_life, **options), q, [5 * f for f in range(p)], 5 * p
    )
    counted.update(*batch(200, q, p, seed=9)[:3])
    return counted


def batch(count, q=3, p=2, seed=0):
    """Numbers, rows, labels and logits."""
    draw = torch.Generator().manual_seed(seed)
    numbers = torch.randn(count, q, generator=draw).round(decimals=1)
    numbers[torch.rand(count, q, generator=draw) < 0.2] = torch.nan
    numbers[::5, :1], numbers[1::5, -1:] = torch.inf, -torch.inf
    rows = torch.randint(5, (count, p), generator=draw) + 5 * torch.arange(p)
    labels = (torch.rand(count, generator=draw) < 0.3).float()
    return numbers, rows, labels, 2 * torch.randn(count, generator=draw)


def plainly(counted, numbers, rows, labels, logits):
    counted.recent.update(counted.cells(numbers, rows), labels, logits)


def by_kernels(counted, *tensors):
    device = counted.edges.device
    counted._count_plainly(*(one.to(device) for one in tensors), cut=False)


def recalled(counted, numbers, rows):
    prior = counted._prior()
    return counted.recent(counted.cells(numbers, rows), prior * (1 - prior))


def assert_same_errors(mine, theirs):
    errors, expected = mine.recent.errors.cpu(), theirs.recent.errors
    if mine.edges.device.type == "cpu":
        assert torch.equal(errors, expected)
    else:  # the last bit of a GPU's exponentials is its own, and decides between two multiples now and then
        torch.testing.assert_close(errors, expected, rtol=0, atol=4 * GRAIN)
    assert torch.equal(errors / GRAIN, (errors / GRAIN).round())
    assert mine.recent.clock.cpu() == theirs.recent.clock


SHAPES = [(3, 2, 100), (0, 2, 100), (3, 0, 100), (3, 2, 1), (1, 0, 5), (13, 26, 37), (2, 1, 700)]


@pytest.mark.parametrize(("q", "p", "count"), SHAPES)
def test_errors_are_noted_and_recalled_as_by_the_plain_version(kernel_device, q, p, count):
    mine, theirs = made(q, p).to(kernel_device), made(q, p)
    for seed in range(3):
        rows = batch(count, q, p, seed)
        by_kernels(mine, *rows)
        plainly(theirs, *rows)
        assert_same_errors(mine, theirs)
    theirs.total.copy_(mine.total)
    for waiting in (0, 1, 13):
        mine.recent.waiting = theirs.recent.waiting = waiting
        found = mine.recent_errors(*(one.to(kernel_device) for one in rows[:2]))
        expected = recalled(theirs, *rows[:2])
        assert found.dtype == torch.float32
        assert expected.any()
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("half_life", [0.013, 1e-3, 1e5])
def test_half_lives_of_any_length(kernel_device, half_life):
    """Of errors that are much older than theirs nothing is left, of others nearly all."""
    mine, theirs = made(half_life=half_life).to(kernel_device), made(half_life=half_life)
    for seed, count in enumerate((90, 41)):
        rows = batch(count, seed=seed)
        by_kernels(mine, *rows)
        plainly(theirs, *rows)
        assert_same_errors(mine, theirs)
    theirs.total.copy_(mine.total)
    found = mine.recent_errors(*(one.to(kernel_device) for one in rows[:2]))
    torch.testing.assert_close(found.cpu(), recalled(theirs, *rows[:2]), rtol=1e-5, atol=1e-8)


def test_old_errors_are_forgotten(kernel_device):
    mine, theirs = made().to(kernel_device), made()
    first, second = batch(60), batch(7, seed=1)
    for one, tell in ((mine, by_kernels), (theirs, plainly)):
        tell(one, *first)
        one.recent.clock += 10**6
        one.recent.waiting = 10**6
    asked = [one.to(kernel_device) for one in first[:2]]
    assert not mine.recent_errors(*asked).any()
    by_kernels(mine, *second)
    plainly(theirs, *second)
    assert_same_errors(mine, theirs)


def test_a_cell_that_all_rows_have(kernel_device):
    mine, theirs = made().to(kernel_device), made()
    numbers, rows, labels, logits = batch(300)
    same = numbers[2:3].expand(300, -1), rows[2:3].expand(300, -1), labels, logits
    for _ in range(2):
        by_kernels(mine, *same)
        plainly(theirs, *same)
        assert_same_errors(mine, theirs)
    assert (theirs.recent.errors[:, 4] > 0).sum() == 6


def test_no_rows(kernel_device):
    mine = made().to(kernel_device)
    numbers, rows, labels, logits = (one.to(kernel_device) for one in batch(0))
    kernels.note(numbers, rows, mine.edges, mine.recent.errors, mine.recent.clock, labels, logits, HALF_LIFE)
    assert not mine.recent.clock
    assert mine.recent_errors(numbers, rows).shape == (0, 12)


@pytest.mark.parametrize("options", [{}, {"numbers": False}, {"categories": False}, {"pairs": 2}])
@pytest.mark.parametrize("ahead", [False, True])
def test_evidence_uses_them(kernel_device, monkeypatch, options, ahead):
    mine, theirs = (made(**options) for _ in range(2))
    rows = batch(40, seed=1)
    there = [one.to(kernel_device) for one in rows]
    with monkeypatch.context() as plain:
        plain.setattr(kernels, "DEVICES", set())
        theirs.update(*rows)
        expected = theirs.recent_errors(*rows[:2])
    monkeypatch.setattr("daes.evidence.recent.RecentErrors._faded", None)
    mine.to(kernel_device)
    if ahead:
        mine.advance(40)
        mine.count_ahead(*there)
    else:
        mine.update(*there)
    assert_same_errors(mine, theirs)
    torch.testing.assert_close(mine.recent_errors(*there[:2]).cpu(), expected, rtol=1e-5, atol=1e-8)


def test_the_custom_operator_is_sound(kernel_device):
    from daes.embedding.kernels.recent import recall

    counted = made().to(kernel_device)
    numbers, rows, labels, logits = (one.to(kernel_device) for one in batch(9))
    by_kernels(counted, numbers, rows, labels, logits)
    known = counted.total, counted.edges, counted.recent.errors, counted.recent.clock
    torch.library.opcheck(recall, (numbers, rows, *known, 3, HALF_LIFE, 20.0))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_graph_records_them(kernel_device):
    mine, theirs = made().to(kernel_device), made()
    parts = [batch(100, seed=seed) for seed in range(4)]
    given = [one.to(kernel_device) for one in parts[0]]
    by_kernels(mine, *given)  # compiles
    mine.recent_errors(*given[:2])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = mine.recent_errors(*given[:2])
        by_kernels(mine, *given)
    plainly(theirs, *parts[0])
    for part in parts[1:]:
        for one, value in zip(given, part, strict=True):
            one.copy_(value)
        theirs.total.copy_(mine.total)
        graph.replay()
        torch.testing.assert_close(found.cpu(), recalled(theirs, *part[:2]), rtol=1e-5, atol=1e-7)
        plainly(theirs, *part)
        assert_same_errors(mine, theirs)
