"""The oracle is the plain version, on the CPU."""

import pytest
import torch

from daes.embedding import kernels
from daes.evidence import Evidence, EvidenceInputs
from daes.evidence.recent import GRAIN

pytest.importorskip("triton")


def made(q=3, p=2, chosen=True, **options):
    """Evidence that has counted and scored some rows, with combinations chosen by the last of them."""
    given = {"bins": 6, "pair_bins": 3, "sample_rows": 200, "choose_after": 200 if chosen else 10**6, **options}
    counted = EvidenceInputs(Evidence(**given), q, [5 * f for f in range(p)], 5 * p)
    counted.update(*batch(260, q, p, seed=9))
    with torch.no_grad():
        counted.combinations.weight.copy_(torch.linspace(-0.5, 1, len(counted.combinations.weight)))
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


def plainly(counted, numbers, rows):
    """What combinations add to logits, by the plain version."""
    odds = counted.combinations(counted._values(numbers, rows), counted._spread())
    return odds @ counted.combinations.weight


def to(device, tensors):
    return [one.to(device) for one in tensors]


def assert_same_errors(mine, theirs):
    errors, expected = mine.combinations.errors.cpu(), theirs.combinations.errors
    if mine.edges.device.type == "cpu":
        assert torch.equal(errors, expected)
    else:  # the last bit of a GPU's exponentials is its own, and decides between two multiples now and then
        torch.testing.assert_close(errors, expected, rtol=0, atol=4 * GRAIN)


SHAPES = [(3, 2, 100), (0, 2, 100), (3, 0, 100), (3, 2, 1), (2, 0, 5), (13, 26, 37), (2, 1, 700)]


@pytest.mark.parametrize(("q", "p", "count"), SHAPES)
def test_errors_are_noted_and_added_as_by_the_plain_version(kernel_device, q, p, count):
    mine, theirs = made(q, p).to(kernel_device), made(q, p)
    assert (theirs.combinations.fields[:, 0] >= 0).any()
    for seed in range(3):
        given = batch(count, q, p, seed)
        mine._count_plainly(*to(kernel_device, given), cut=False)
        theirs.combinations.update(theirs._values(*given[:2]), *given[2:])
        assert_same_errors(mine, theirs)
    theirs.total.copy_(mine.total)
    found, expected = mine.combined(*to(kernel_device, given[:2])), plainly(theirs, *given[:2])
    assert found.dtype == torch.float32
    assert expected.any()
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-6)


def test_gradients(kernel_device):
    mine, theirs = made().to(kernel_device), made()
    given, gradient = batch(50), torch.linspace(-1, 1, 50)
    mine.combined(*to(kernel_device, given[:2])).backward(gradient.to(kernel_device))
    plainly(theirs, *given[:2]).backward(gradient)
    assert theirs.combinations.weight.grad.any()
    torch.testing.assert_close(mine.combinations.weight.grad.cpu(), theirs.combinations.weight.grad)


def test_frozen(kernel_device):
    mine, theirs = made().freeze().to(kernel_device), made()
    given = batch(50)
    found = mine.combined(*to(kernel_device, given[:2]))
    torch.testing.assert_close(found.cpu(), plainly(theirs, *given[:2]), rtol=1e-5, atol=1e-6)


def test_before_fields_are_chosen_there_is_nothing(kernel_device):
    mine = made(chosen=False).to(kernel_device)
    given = to(kernel_device, batch(50))
    mine._count_plainly(*given, cut=False)
    assert not mine.combinations.errors.any()
    assert not mine.combined(*given[:2]).any()


def test_a_cell_that_all_rows_have(kernel_device):
    mine, theirs = made().to(kernel_device), made()
    numbers, rows, labels, logits = batch(300)
    given = numbers[2:3].expand(300, -1), rows[2:3].expand(300, -1), labels, logits
    mine._count_plainly(*to(kernel_device, given), cut=False)
    theirs.combinations.update(theirs._values(*given[:2]), *given[2:])
    assert_same_errors(mine, theirs)


def test_no_rows(kernel_device):
    mine = made().to(kernel_device)
    given = to(kernel_device, batch(0))
    before = mine.combinations.errors.clone()
    mine._count_plainly(*given, cut=False)
    assert torch.equal(mine.combinations.errors, before)
    assert mine.combined(*given[:2]).shape == (0,)


@pytest.mark.parametrize("options", [{}, {"numbers": False}, {"categories": False}, {"triples": 0}, {"half_life": 9.0}])
@pytest.mark.parametrize("ahead", [False, True])
def test_evidence_uses_them(kernel_device, monkeypatch, options, ahead):
    """Combinations and counts: those of the plain version, which is not called."""
    mine, theirs = (made(p=3, **options) for _ in range(2))
    given = batch(40, p=3, seed=1)
    there = to(kernel_device, given)
    with monkeypatch.context() as plain:
        plain.setattr(kernels, "DEVICES", set())
        theirs.update(*given)
        expected = theirs.combined(*given[:2])
    assert expected.any()
    for plain in ("Combinations.places", "EvidenceInputs._count_numbers"):
        room = "combinations" if plain.startswith("Combinations") else "inputs"
        monkeypatch.setattr(f"daes.evidence.{room}.{plain}", None)
    mine.to(kernel_device)
    if ahead:
        mine.advance(40)
        mine.count_ahead(*there)
    else:
        mine.update(*there)
    torch.testing.assert_close(mine.combined(*there[:2]).cpu(), expected, rtol=1e-5, atol=1e-6)
    for name in ("total", "number_counts", "row_counts"):
        torch.testing.assert_close(getattr(mine, name).cpu(), getattr(theirs, name), rtol=1e-12, atol=0)


def test_the_custom_operator_is_sound(kernel_device):
    from daes.embedding.kernels.combined import combine

    counted = made().to(kernel_device)
    numbers, rows, *_ = to(kernel_device, batch(9))
    found = counted.combinations
    weight = found.weight.detach().clone().requires_grad_()
    known = counted.edges, counted.total, found.fields, found.errors, weight
    torch.library.opcheck(combine, (numbers, rows, *known, 2, 20.0))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_graph_records_them(kernel_device):
    mine, theirs = made().to(kernel_device), made()
    parts = [batch(100, seed=seed) for seed in range(4)]
    given = to(kernel_device, parts[0])
    mine._count_plainly(*given, cut=False)  # compiles
    mine.combined(*given[:2])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        found = mine.combined(*given[:2])
        mine._count_plainly(*given, cut=False)
    theirs.combinations.update(theirs._values(*parts[0][:2]), *parts[0][2:])
    for part in parts[1:]:
        for one, value in zip(given, part, strict=True):
            one.copy_(value)
        theirs.total.copy_(mine.total)
        graph.replay()
        torch.testing.assert_close(found.cpu(), plainly(theirs, *part[:2]), rtol=1e-5, atol=1e-6)
        theirs.combinations.update(theirs._values(*part[:2]), *part[2:])
        assert_same_errors(mine, theirs)
