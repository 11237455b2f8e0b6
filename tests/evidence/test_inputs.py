"""Evidence against a slow, obvious count in plain Python."""

import math
from collections import Counter
from copy import deepcopy

import numpy as np
import pytest
import torch

from daes import native
from daes.evidence import Evidence, EvidenceInputs
from daes.evidence.odds import NO_CUT

OFFSETS, TABLE_ROWS = [0, 5], 12


def stream(rows=2000, seed=0):
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(rows, 2, generator=generator).exp()
    numbers[torch.rand(rows, generator=generator) < 0.4, 1] = 0.0  # one value fills many quantiles
    numbers[torch.rand(rows, 2, generator=generator) < 0.1] = torch.nan
    ids = torch.stack(
        [torch.randint(5, (rows,), generator=generator), torch.randint(7, (rows,), generator=generator)], 1
    )
    logit = numbers.nan_to_num(nan=1.0).log1p().sum(1) - 1.5 + 0.5 * ids[:, 0] - 0.2 * ids[:, 0] * (ids[:, 1] == 3)
    labels = (torch.rand(rows, generator=generator) < torch.sigmoid(logit)).float()
    return numbers, ids + torch.tensor(OFFSETS), labels


def counted(rows=2000, batch=100, seed=0, **options):
    module = EvidenceInputs(Evidence(**options), 2, OFFSETS, TABLE_ROWS)
    for part in zip(*(tensor.split(batch) for tensor in stream(rows, seed)), strict=True):
        module.update(*part)
    return module


def z(views, clicks, prior, strength=20.0):
    return math.log((clicks + strength * prior) / (views - clicks + strength * (1 - prior))) - math.log(
        prior / (1 - prior)
    )


def test_categories_are_counted_by_hand():
    module = counted(rows=500)
    numbers, rows, labels = stream(500)
    prior = (float(labels.sum()) + 2) / 510
    found = module(numbers, rows)[:, 2:]
    views = [Counter(column.tolist()) for column in rows.T]
    clicks = [Counter(column[labels > 0].tolist()) for column in rows.T]
    for row in range(40):
        for field in range(2):
            id_ = int(rows[row, field])
            n, c = views[field][id_], clicks[field][id_]
            assert found[row, field] == pytest.approx(z(n, c, prior), abs=1e-5)
            assert found[row, 2 + field] == pytest.approx(math.log1p(n) / 4 - 1, abs=1e-5)


@pytest.mark.parametrize("rows", [60, 128, 1000, 2000])
def test_numbers_are_counted_by_hand(rows):
    """As long as the sample holds every row, bins hold the counts of all rows since the last cut and before."""
    module = counted(rows=rows, batch=20, bins=8, pair_bins=4)
    numbers, ids, labels = stream(rows)
    prior = (float(labels.sum()) + 2) / (rows + 10)
    found = module(numbers, ids)
    for feature in range(2):
        edges = [edge for edge in module.edges[feature].tolist() if edge < NO_CUT]

        def bin_of(value, edges=edges):
            return -1 if math.isnan(value) else sum(edge < value for edge in edges)

        bins = [bin_of(value) for value in numbers[:, feature].tolist()]
        views, clicks = Counter(bins), Counter(b for b, label in zip(bins, labels.tolist(), strict=True) if label)
        for row in range(min(rows, 50)):
            assert found[row, feature] == pytest.approx(z(views[bins[row]], clicks[bins[row]], prior), abs=1e-5)


def test_a_value_that_fills_quantiles_has_a_bin_of_its_own():
    module = counted(bins=8, pair_bins=4)
    zero = module.bins(torch.tensor([[1.0, 0.0]]))[0, 1]
    assert (module.bins(torch.tensor([[1.0, -1e-6], [1.0, 1e-6]]))[:, 1] != zero).all()


@pytest.mark.parametrize("options", [{}, {"pairs": 0}, {"half_life": 300.0}, {"choose_after": 100}])
def test_nothing_is_known_of_the_future(options):
    """What a batch is given depends on the batches before it alone: scrambled labels later on change no bit of it."""
    numbers, rows, labels = stream()
    other = labels.clone()
    other[1000:] = 1 - other[1000:]
    scores = torch.randn(2000, generator=torch.Generator().manual_seed(1))
    modules = [EvidenceInputs(Evidence(**options), 2, OFFSETS, TABLE_ROWS) for _ in range(2)]
    for start in range(0, 2000, 100):
        part = slice(start, start + 100)
        given = [module(numbers[part], rows[part]) for module in modules]
        assert torch.equal(*given) == (start <= 1000)
        if modules[0].combinations is not None:
            combined = [module.combined(numbers[part], rows[part]) for module in modules]
            assert torch.equal(*combined) == (start <= 1000 or "choose_after" not in options)
        for module, known in zip(modules, (labels, other), strict=True):
            module.update(numbers[part], rows[part], known[part], scores[part])


def test_an_unseen_id_and_an_untouched_module_say_nothing():
    module = EvidenceInputs(Evidence(), 2, OFFSETS, TABLE_ROWS)
    row = torch.tensor([[1.0, math.nan]]), torch.tensor([[0, 5]])
    assert module(*row).tolist() == [[0.0] * 4 + [-1.0] * 2]
    assert module.dim == 6
    assert module.combined(*row).tolist() == [0.0]


def test_forward_changes_nothing_and_gives_float32():
    module = counted()
    before = deepcopy(module.state_dict())
    assert module(*stream(50)[:2]).dtype == torch.float32
    assert all(
        torch.equal(value.nan_to_num(), before[name].nan_to_num()) for name, value in module.state_dict().items()
    )


@pytest.mark.parametrize("options", [{}, {"numbers": False}, {"categories": False}])
def test_an_exported_program_looks_up_what_is_computed_here(options):
    module = counted(**options).eval()
    numbers, rows, _ = stream(64, seed=3)
    numbers[::7, 0] = math.nan
    with module.tabled():
        tabled = torch.export.export(module, (numbers, rows))
    counting = torch.export.export(module, (numbers, rows))
    expected = module(numbers, rows)
    assert torch.allclose(tabled.module()(numbers, rows), expected, atol=1e-6)
    assert torch.allclose(counting.module()(numbers, rows), expected, atol=1e-6)
    assert "aten.log" not in str(tabled.graph)
    assert "aten.log" in str(counting.graph)


class TestState:
    def test_a_saved_state_goes_on_bit_for_bit(self):
        from safetensors.torch import load, save

        one, other = (
            counted(sample_rows=300, choose_after=50),
            EvidenceInputs(Evidence(sample_rows=300, choose_after=50), 2, OFFSETS, TABLE_ROWS),
        )
        other.load_state_dict(load(save(one.state_dict())))
        third = deepcopy(one)
        for part in zip(*(tensor.split(150) for tensor in stream(6000, seed=3)), strict=True):
            for module in (one, other, third):
                module.update(*part, logits=part[0].nan_to_num().sum(1) - 2)
        for name, value in one.state_dict().items():
            assert torch.equal(value.nan_to_num(), other.state_dict()[name].nan_to_num()), name
            assert torch.equal(value.nan_to_num(), third.state_dict()[name].nan_to_num()), name

    def test_frozen_is_small_and_says_the_same(self):
        module = counted()
        given = module(*stream(50)[:2])
        before = len(module.state_dict())
        module.freeze()
        assert torch.equal(module(*stream(50)[:2]), given)
        assert len(module.state_dict()) < before
        module.update(*stream(200, seed=8))
        assert torch.equal(module(*stream(50)[:2]), given)
        again = EvidenceInputs(Evidence(), 2, OFFSETS, TABLE_ROWS)
        again.load_state_dict(module.state_dict())
        assert torch.equal(again(*stream(50)[:2]), given)

    @pytest.mark.parametrize("options", [{}, {"numbers": False, "pairs": 0}, {"numbers": False, "categories": False}])
    def test_a_state_that_was_frozen_stays_frozen(self, options):
        state = counted(**options).freeze().state_dict()
        again = EvidenceInputs(Evidence(**options), 2, OFFSETS, TABLE_ROWS)
        again.load_state_dict(state)
        again.update(*stream(200, seed=8))
        assert torch.equal(again.total, state["total"])

    @pytest.mark.parametrize("frozen", [False, True])
    def test_a_state_that_does_not_say_whether_it_is_frozen_is_read(self, frozen):
        module = counted()
        state = (module.freeze() if frozen else module).state_dict()
        del state["_extra_state"]
        again = EvidenceInputs(Evidence(), 2, OFFSETS, TABLE_ROWS)
        again.load_state_dict(state)
        assert again.frozen == frozen

    def test_a_cast_leaves_counts_alone(self):
        module = counted().half()
        assert module.row_counts.dtype == torch.float64
        assert module.edges.dtype == torch.float32

    def test_reset_forgets(self):
        module = counted()
        module.reset()
        fresh = EvidenceInputs(Evidence(), 2, OFFSETS, TABLE_ROWS)
        for part in zip(*(tensor.split(100) for tensor in stream()), strict=True):
            module.update(*part)
            fresh.update(*part)
        assert torch.equal(module(*stream(50)[:2]), fresh(*stream(50)[:2]))


def test_merged_evidence_is_that_of_both_streams():
    numbers, rows, labels = stream(2000)
    whole, one, other = (EvidenceInputs(Evidence(), 2, OFFSETS, TABLE_ROWS, seed=seed) for seed in range(3))
    for start in range(0, 2000, 100):
        part = slice(start, start + 100)
        whole.update(numbers[part], rows[part], labels[part])
        (one if start < 800 else other).update(numbers[part], rows[part], labels[part])
    one.merge(other)
    assert torch.equal(one.row_counts, whole.row_counts)
    assert torch.equal(one.total, whole.total)
    # Nothing was left out of the samples, so the bins hold all rows too; they may be cut elsewhere.
    np.testing.assert_allclose(one.number_counts.sum(1), whole.number_counts.sum(1))
    with pytest.raises(ValueError, match="same things"):
        one.merge(EvidenceInputs(Evidence(bins=32), 2, OFFSETS, TABLE_ROWS))
    with pytest.raises(ValueError, match="same things"):
        one.merge(EvidenceInputs(Evidence(), 2, [0, 4], TABLE_ROWS))
    with pytest.raises(ValueError, match="frozen"):
        one.freeze().merge(other.freeze())


def test_old_clicks_fade_with_a_half_life():
    module = EvidenceInputs(Evidence(half_life=100.0), 2, OFFSETS, TABLE_ROWS)
    numbers, rows, _ = stream(100)
    module.update(numbers, rows, torch.ones(100))
    module.update(numbers, rows, torch.zeros(100))
    assert module.total.tolist() == [150.0, 50.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strength": 0}, "strength must be positive, got 0"),
        ({"pairs": -1}, "pairs must be a non-negative integer, got -1"),
        ({"bins": 10}, "pair_bins must divide bins=10, got 16"),
        ({"triples": -1}, "triples must be a non-negative integer, got -1"),
        ({"choose_after": 0}, "choose_after must be a positive integer, got 0"),
        ({"sample_rows": 2.5}, "sample_rows must be a positive integer, got 2.5"),
        ({"half_life": -5.0}, "half_life must be positive"),
        ({"recent": math.nan}, "recent must be positive, got nan"),
        ({"recent": math.inf}, "recent must be positive and finite, got inf"),
        ({"strength": math.inf}, "strength must be positive and finite, got inf"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Evidence(**options)


@pytest.mark.parametrize(
    "options", [{"numbers": False}, {"categories": False}, {"numbers": False, "categories": False}]
)
def test_parts_may_be_left_out(options):
    module = counted(rows=300, **options)
    assert module(*stream(10)[:2]).shape == (10, module.dim)


def test_logits_start_from_what_was_counted():
    module = counted(rows=500, weight=0.3)
    numbers, rows, labels = stream(500)
    inputs = module(numbers, rows)
    rate = (float(labels.sum()) + 2) / 510
    base = math.log(rate / (1 - rate))
    torch.testing.assert_close(module.logit(inputs), base + 0.3 * inputs[:, :4].sum(1))  # 2 numbers, 2 categories
    assert float(module.logit()) == pytest.approx(base)


def test_without_inputs_there_is_nothing_to_learn():
    module = EvidenceInputs(Evidence(numbers=False, categories=False), 2, OFFSETS, TABLE_ROWS)
    assert not list(module.parameters())


def test_a_weight_that_is_not_finite_is_an_error():
    with pytest.raises(ValueError, match="weight must be finite and not negative, got inf"):
        Evidence(weight=math.inf)


def test_a_state_of_other_parts_alone_changes_nothing():
    counted = EvidenceInputs(Evidence(), 1, [0], 3)
    counted.load_state_dict({}, strict=False)
    assert counted.sample is not None
    assert counted.recent is not None
    assert not counted.frozen
    with pytest.raises(RuntimeError, match="Missing key"):
        counted.load_state_dict({})


@pytest.mark.parametrize("options", [{}, {"numbers": False}, {"categories": False}, {"pairs": 0}, {"recent": None}])
def test_what_is_fitted_later_is_the_same(options):
    """Bins and combinations may be left for `refit`, as long as nothing else happens in between."""
    options = {"bins": 8, "pair_bins": 4, "choose_after": 100, "sample_rows": 700, **options}
    one, other = (EvidenceInputs(Evidence(**options), 2, OFFSETS, TABLE_ROWS) for _ in range(2))
    given = *stream(1500), torch.randn(1500, generator=torch.Generator().manual_seed(2))
    left = 0
    for part in zip(*(tensor.split(90) for tensor in given), strict=True):
        one.update(*part)
        other.update(*part, refit=False)
        left += not torch.equal(one.edges, other.edges)
        other.refit()
        assert one.state_dict().keys() == other.state_dict().keys()
        assert all(map(torch.equal, one.state_dict().values(), other.state_dict().values()))
    assert left == (0 if options.get("numbers") is False else 5)


@pytest.mark.parametrize("rows", [1, 31, 4000])
def test_loops_cut_bins_as_tensors_do(rows, monkeypatch):
    numbers, ids, labels = stream(rows)
    numbers[: rows // 20, 0] = torch.inf
    numbers[rows // 2 :, 0] -= 2.5

    def cut():
        module = EvidenceInputs(Evidence(), 2, OFFSETS, TABLE_ROWS)
        module.update(numbers, ids, labels)
        return module

    fast = cut()
    monkeypatch.setattr(native, "_library", None)
    plain = cut()
    assert torch.equal(fast.edges, plain.edges)
    torch.testing.assert_close(fast.number_counts, plain.number_counts)
    assert fast.number_counts[..., 0].sum(1).tolist() == [rows, rows]
