"""Combinations against a slow, obvious count in plain Python."""

import math
from collections import defaultdict
from copy import deepcopy
from itertools import combinations

import numpy as np
import pytest
import torch

from daes import native
from daes.evidence import Combinations, Evidence, EvidenceInputs
from daes.evidence.combinations import rate

FIELDS = [[0, 1, -1], [1, 3, -1], [0, 1, 2], [-1, -1, -1]]


def rows(count=600, seed=0, fields=4, values=5):
    generator = torch.Generator().manual_seed(seed)
    found = torch.randint(values, (count, fields), generator=generator)
    labels = (torch.rand(count, generator=generator) < 0.3).float()
    return found, labels, torch.randn(count, generator=generator)


def chosen(fields=FIELDS, cells=10_007):
    made = Combinations(num_pairs=2, num_triples=2, cells=cells, strength=20.0)
    made.fields.copy_(torch.tensor(fields))
    return made


def by_hand(values, labels, logits, fields, spread, strength=20.0):
    """z of every row after all rows, one dictionary per combination."""
    errors, variances = defaultdict(float), defaultdict(float)
    keys = [tuple(row[field] for field in fields if field >= 0) for row in values.tolist()]
    for key, label, logit in zip(keys, labels.tolist(), logits.tolist(), strict=True):
        score = 1 / (1 + math.exp(-logit))
        errors[key] += label - score
        variances[key] += score * (1 - score)
    return [errors[key] / (variances[key] + strength * spread) for key in keys]


def test_errors_are_noted_by_hand():
    values, labels, logits = rows()
    made = chosen()
    for part in zip(values.split(70), labels.split(70), logits.split(70), strict=True):
        made.update(*part)
    found = made(values, spread=0.2)
    for place, fields in enumerate(FIELDS[:3]):
        assert found[:, place].tolist() == pytest.approx(by_hand(values, labels, logits, fields, 0.2), abs=1e-6)
    assert not found[:, 3].any()  # not chosen yet


def test_combinations_share_cells_where_there_are_too_few():
    values, labels, logits = rows()
    made = chosen(cells=3)
    made.update(values, labels, logits)
    assert made.places(values).max() < 12
    torch.testing.assert_close(made.errors.sum(1)[:3, 1], torch.full((3,), float(made.errors[0, :, 1].sum())).double())


def padded(candidates):
    return np.array([[*one, *[-1] * (3 - len(one))] for one in candidates])


@pytest.mark.parametrize("loops", [True, False])
def test_candidates_are_rated_by_hand(loops, monkeypatch):
    if not loops:
        monkeypatch.setattr(native, "_library", None)
    values, labels, logits = rows()
    score = torch.sigmoid(logits.double())
    error, variance = (labels - score).numpy(), (score * (1 - score)).numpy()
    candidates = [*combinations(range(4), 2), *combinations(range(4), 3)]
    found = rate(values.int().numpy(), error, variance, padded(candidates), 10_007)
    for one, given in zip(candidates, found, strict=True):
        sums = defaultdict(lambda: np.zeros(2))
        for row, s, v in zip(values.tolist(), error, variance, strict=True):
            sums[tuple(row[field] for field in one)] += s, v
        assert given == pytest.approx(sum((s * s - v) / (v + 1) for s, v in sums.values()))
    assert (
        rate(values.int().numpy()[:20], error[:20], variance[:20], padded([(0, 1, 2)]), 10_007) == -np.inf
    )  # seen once


@pytest.mark.parametrize("cells", [1, 2, 7, 8191])
@pytest.mark.parametrize("count", [0, 1, 255, 1000])
def test_candidates_that_share_cells_are_rated_as_without_loops(cells, count, monkeypatch):
    random = np.random.default_rng(count)
    values = random.integers(0, [1, 5, 3 * 10**6, 2**31 - 1], (count, 4)).astype(np.int32)
    error, variance = random.normal(size=count), random.random(count)
    given = values, error, variance, padded([*combinations(range(4), 2), *combinations(range(4), 3)]), cells
    found = rate(*given)
    monkeypatch.setattr(native, "_library", None)
    np.testing.assert_allclose(found, rate(*given), rtol=1e-9)


def parity(count, fields, seed=0):
    """Labels that only the parity of some of six fields says something of."""
    values, _, _ = rows(count, seed, fields=6, values=2)
    generator = torch.Generator().manual_seed(seed + 1)
    odd = values[:, fields].sum(1) % 2
    return values, (torch.rand(count, generator=generator) < 0.2 + 0.6 * odd).float()


def test_a_pair_that_says_more_than_its_fields_is_found():
    values, labels = parity(4000, (1, 4))
    made = Combinations(num_pairs=3, num_triples=3, cells=101, strength=20.0)
    made.choose(values, labels, torch.zeros(4000), rows=4000)
    z = made(values, spread=0.25)[:, made.fields.tolist().index([1, 4, -1])]
    assert ((z > 0.5) == (values[:, [1, 4]].sum(1) % 2 == 1)).all()


def test_a_triple_is_found_through_a_pair_of_its_fields():
    values, _, _ = rows(4000, fields=6, values=2)
    three = values[:, [0, 2, 5]].all(1)
    labels = (torch.rand(4000, generator=torch.Generator().manual_seed(1)) < 0.3 + 0.6 * three).float()
    made = Combinations(num_pairs=3, num_triples=1, cells=101, strength=20.0)
    made.choose(values, labels, torch.zeros(4000), rows=4000)
    assert made.fields[3].tolist() == [0, 2, 5]


def test_fields_stay_while_their_weight_is_positive():
    values, labels = parity(4000, (1, 4))
    made = Combinations(num_pairs=2, num_triples=0, cells=101, strength=20.0)
    made.choose(values, labels, torch.zeros(4000), rows=4000)
    place = made.fields.tolist().index([1, 4, -1])
    other = 1 - place
    with torch.no_grad():
        made.weight[other] = -0.1
    before = made.fields.clone()
    right = torch.where(values[:, [1, 4]].sum(1) % 2 == 1, 1.386, -1.386)  # scores that know it all
    noise = torch.randint(2, (4000, 6), generator=torch.Generator().manual_seed(5))
    made.choose(torch.where(torch.tensor([False, True, False, False, True, False]), values, noise), labels, right, 4000)
    assert made.fields[place].tolist() == before[place].tolist()
    assert made.fields[other].tolist() != before[other].tolist()
    assert made.weight.detach()[other] == pytest.approx(0.1)  # a new one starts anew


def test_a_sample_stands_for_all_rows():
    values, labels, logits = rows()
    made, whole = chosen(), chosen()
    whole.update(values, labels, logits)
    made.read(values, labels, logits, 1800.0, [0, 2])
    torch.testing.assert_close(made.errors[[0, 2]], 3 * whole.errors[[0, 2]])
    assert not made.errors[[1, 3]].any()


def evidence(rows_=600, batch=50, **options):
    """Evidence of two numbers and two categories, with scores, and what it was given."""
    made = EvidenceInputs(
        Evidence(**{"pairs": 3, "triples": 2, "choose_after": 64, "bins": 8, "pair_bins": 4, **options}), 2, [0, 4], 9
    )
    generator = torch.Generator().manual_seed(3)
    numbers = torch.randn(rows_, 2, generator=generator)
    numbers[torch.rand(rows_, 2, generator=generator) < 0.1] = torch.nan
    ids = torch.stack(
        [torch.randint(4, (rows_,), generator=generator), 4 + torch.randint(5, (rows_,), generator=generator)], 1
    )
    labels = ((numbers[:, 0].nan_to_num() > 0) ^ (ids[:, 0] > 1)).float()
    logits = torch.randn(rows_, generator=generator) / 3
    for start in range(0, rows_, batch):
        part = slice(start, start + batch)
        made.update(numbers[part], ids[part], labels[part], logits[part])
    return made, (numbers, ids, labels, logits)


@pytest.mark.parametrize("cells", [2, 7, 8191, 46_340, 46_341, 70_001])
def test_loops_do_what_tensors_do(cells, monkeypatch):
    torch.manual_seed(0)
    fast, (numbers, ids, *_) = evidence(pair_cells=cells)
    given = fast.combined(numbers, ids)
    monkeypatch.setattr(native, "_library", None)
    torch.manual_seed(0)
    plain, _ = evidence(pair_cells=cells)
    assert fast.counts() is None
    assert plain.combinations.fields.tolist() == fast.combinations.fields.tolist()
    torch.testing.assert_close(plain.combinations.errors, fast.combinations.errors, atol=1e-8, rtol=0)
    torch.testing.assert_close(plain.combined(numbers, ids), given)
    assert given.abs().max() > 0.01 or cells == 2


@pytest.mark.parametrize("cells", [1, 2, 3, 127, 128, 129, 8191, 32_768, 46_340, 46_341, 65_537, 1_000_003])
def test_cells_of_large_values(cells, monkeypatch):
    """The loops divide by a multiplication where that is exact, up to the largest value that there can be."""
    values, labels, logits = rows(2000, values=2**31 - 1)
    values[:40] = (
        torch.tensor([0, 1, cells - 1, cells, 2**31 - 2, 2**31 - 1, (2**31 - 1) // cells * cells, 5])
        .view(2, 4)
        .repeat(20, 1)
    )
    fast, plain = chosen(cells=cells), chosen(cells=cells)
    fast.read(values, labels, logits, 2000, [0, 1, 2])
    monkeypatch.setattr(native, "_library", None)
    plain.read(values, labels, logits, 2000, [0, 1, 2])
    torch.testing.assert_close(fast.errors, plain.errors, atol=1e-8, rtol=0)


@pytest.mark.parametrize("options", [{}, {"numbers": False}, {"categories": False}, {"bins": 6, "pair_bins": 3}])
@pytest.mark.parametrize("cells", [1, 5, 8191, 46_341])
@pytest.mark.parametrize("count", [0, 1, 33, 600])
def test_values_of_loops_are_those_of_tensors(options, cells, count):
    made, (numbers, ids, *_) = evidence(**{"pair_cells": cells, **options})
    counts = made.counts()
    if counts is None:
        pytest.skip("there are no compiled loops")
    numbers, ids = numbers[:count].contiguous(), ids[:count].contiguous()
    assert counts.values(numbers, ids).tolist() == (made._values(numbers, ids) % cells).tolist()


def test_values_modulo_the_cells_are_chosen_and_read_alike():
    values, labels, logits = rows(1200, fields=6, values=10**6)
    values[:, :3] %= 3
    one, other = (Combinations(num_pairs=3, num_triples=3, cells=211, strength=20.0) for _ in range(2))
    one.choose(values, labels, logits, rows=5000)
    other.choose((values % 211).int().t().contiguous().t(), labels, logits, rows=5000)
    assert one.fields.tolist() == other.fields.tolist()
    assert one.errors.any()
    assert torch.equal(one.errors, other.errors)


def test_of_many_fields_the_most_informative_are_combined():
    values, labels = parity(4000, (1, 4))
    values = torch.cat([values, torch.randint(2, (4000, 39), generator=torch.Generator().manual_seed(7))], 1)
    for strong, found in (([1, 4], True), ([0, 2, 3, 5, 6, 7], False)):
        made = Combinations(num_pairs=3, num_triples=0, cells=101, strength=20.0)
        strengths = [2.0 * (field in strong) + (field not in (1, 4)) for field in range(45)]
        made.choose(values, labels, torch.zeros(4000), 4000, lambda strengths=strengths: strengths)
        assert ([1, 4, -1] in made.fields.tolist()) == found


@pytest.mark.parametrize("options", [{"numbers": False}, {"categories": False}, {"recent": None}, {"triples": 0}])
def test_parts_may_be_left_out(options, monkeypatch):
    torch.manual_seed(0)
    fast, (numbers, ids, *_) = evidence(**options)
    given = fast.combined(numbers, ids)
    monkeypatch.setattr(native, "_library", None)
    torch.testing.assert_close(fast.combined(numbers, ids), given)


def test_errors_follow_bins_that_are_cut_anew():
    """As long as the sample holds every row, cells hold the errors of all rows, in today's bins."""
    made, (numbers, ids, labels, logits) = evidence()
    z = made.combinations(made._values(numbers, ids), made._spread())
    for place, fields in enumerate(made.combinations.fields.tolist()):
        expected = by_hand(made._values(numbers, ids), labels, logits, fields, float(made._spread()))
        assert z[:, place].tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("after", "chosen_at"), [(2, 4), (10, 16), (16, 16), (60, 64), (1000, 1024)])
def test_fields_are_chosen_when_bins_are_cut_the_first_time_after_so_many_rows(after, chosen_at):
    made = EvidenceInputs(Evidence(choose_after=after, pairs=1, bins=2, pair_bins=2, pair_cells=11), 2, [], 0)
    numbers = torch.randn(chosen_at, 2, generator=torch.Generator().manual_seed(0))
    numbers[:2, 0] = numbers[2:4, 0] = torch.tensor([1.0, -1.0])  # two cells, each of several rows
    labels = (numbers > 0).sum(1).eq(1).float()
    for row in range(chosen_at):
        assert not made.combinations.are_chosen
        one = slice(row, row + 1)
        made.update(numbers[one], torch.empty(1, 0, dtype=torch.int64), labels[one], torch.zeros(1))
    assert made.combinations.are_chosen


def test_fields_are_chosen_as_soon_as_there_are_scores():
    made = EvidenceInputs(Evidence(choose_after=64, pairs=1, bins=2, pair_bins=2, pair_cells=11), 2, [], 0)
    numbers, labels, none = torch.randn(260, 2), torch.arange(260) % 2.0, torch.empty(260, 0, dtype=torch.int64)
    made.update(numbers[:200], none[:200], labels[:200])
    assert not made.combinations.are_chosen
    made.update(numbers[200:], none[200:], labels[200:], torch.zeros(60))
    assert made.combinations.are_chosen


def test_the_interaction_is_among_the_chosen():
    made, _ = evidence()
    assert [0, 2, -1] in made.combinations.fields.tolist()


def test_frozen_says_the_same_in_a_quarter_of_the_memory():
    made, (numbers, ids, *_) = evidence()
    given, size = made.combined(numbers, ids), made.combinations.errors.nbytes
    made.freeze()
    torch.testing.assert_close(made.combined(numbers, ids), given)
    assert made.combinations.errors.nbytes * 4 == size
    again = EvidenceInputs(made.options, 2, [0, 4], 9)
    again.load_state_dict(made.state_dict())
    torch.testing.assert_close(again.combined(numbers, ids), given)
    assert again.frozen


def test_an_exported_program_looks_combinations_up():
    made, (numbers, ids, *_) = evidence()

    class Combined(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.evidence = made

        def forward(self, numbers, ids):
            return self.evidence.combined(numbers, ids)

    expected = made.combined(numbers, ids)
    with made.tabled():
        program = torch.export.export(Combined().eval(), (numbers, ids))
    torch.testing.assert_close(program.module()(numbers, ids), expected)


def test_merged_combinations_are_chosen_in_both_samples():
    torch.manual_seed(0)
    one, _ = evidence()
    torch.manual_seed(1)
    other, _ = evidence(rows_=900)
    one.merge(other)
    assert [0, 2, -1] in one.combinations.fields.tolist()
    # Every combination has the errors of all rows, which the samples hold.
    assert one.combinations.errors[..., 1].sum(1).numpy() == pytest.approx(
        float(one.combinations.errors[0, :, 1].sum())
    )


def test_reset_forgets_and_a_half_life_fades():
    made, (numbers, ids, labels, logits) = evidence(half_life=600.0)
    before = deepcopy(made.combinations.errors)
    made.update(numbers[:1], ids[:1], labels[:1], logits[:1])
    faded = made.combinations.errors[..., 1].sum(1) - before[..., 1].sum(1) * 2 ** (-1 / 600)
    assert faded.numpy() == pytest.approx(float(torch.sigmoid(logits[0]) * torch.sigmoid(-logits[0])), abs=1e-5)
    made.reset()
    assert not made.combined(numbers, ids).any()


def test_rows_without_scores_are_not_noted():
    made, (numbers, ids, labels, _) = evidence(rows_=0)
    made.update(numbers, ids, labels)
    made.update(torch.randn(300, 2), torch.zeros(300, 2, dtype=torch.int64), torch.ones(300))
    assert not made.combinations.errors.any()
    assert (made.combinations.fields == -1).all()


def test_one_column_cannot_be_combined():
    assert EvidenceInputs(Evidence(), 1, [], 0).combinations is None
    two = EvidenceInputs(Evidence(), 1, [0], 3).combinations
    assert (two.num_pairs, len(two.weight)) == (1, 1)


def test_wrong_fields_of_a_state_are_not_read():
    """A file may say anything: fields that there are not count as none."""
    made, (numbers, ids, *_) = evidence()
    if made.counts() is None:
        pytest.skip("there are no compiled loops")
    made.combinations.fields[0] = torch.tensor([10**12, -5, 77])
    assert torch.isfinite(made.combined(numbers, ids)).all()


def test_the_cells_are_a_product_with_a_matrix():
    made = Combinations(num_pairs=2, num_triples=2, cells=97, strength=20.0)
    made.fields.copy_(torch.tensor([[0, 3, -1], [-1, -1, -1], [1, 2, 4], [4, 1, 0]]))
    values = torch.randint(100_000, (500, 5), generator=torch.Generator().manual_seed(0))
    places = values @ made.matrix(5) % 97 + torch.arange(4) * 97
    assert torch.equal(places, made.places(values))


@pytest.mark.parametrize("large", [2**31, 3_000_000_000, 2**40, -7])
def test_values_beyond_32_bits_have_the_cells_of_places(large):
    values = torch.tensor([[0, 0], [0, large], [1, 0], [1, large]] * 300)
    labels = torch.tensor([0.0, 1.0, 1.0, 0.0] * 300)
    combined = Combinations(num_pairs=1, num_triples=0, cells=101, strength=20.0)
    combined.choose(values, labels, torch.zeros(1200), 1200)
    assert combined.fields.tolist() == [[0, 1, -1]]
    read = combined.errors.clone()
    combined.errors.zero_()
    combined.update(values, labels, torch.zeros(1200))
    assert torch.equal(read, combined.errors)


def test_32_bit_values_may_be_negative():
    values = np.array([[0, -5], [3, 100]] * 50, np.int32)
    error, variance = np.ones(100), np.full(100, 0.25)
    candidates = np.array([[0, 1, -1]])
    found = rate(values, error, variance, candidates, 101)
    np.testing.assert_allclose(found, rate(values % 101, error, variance, candidates, 101))
