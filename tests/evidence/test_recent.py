"""Errors of the last rows: by hand, compiled and not, in a model, and on a stream whose world changes."""

from math import exp

import numpy as np
import pytest
import torch

from daes import native
from daes.evidence import Evidence, EvidenceInputs, RecentErrors
from daes.model import CTRModel
from daes.simulation import AdStream
from daes.stream.batch import Batch
from daes.stream.schema import Schema
from daes.training.config import TrainConfig
from daes.training.step import TrainingStep

HALF_LIFE, STRENGTH = 7.0, 20.0


def made(cells=12, features=3):
    return RecentErrors(cells, features, HALF_LIFE, STRENGTH)


def stream(rows, seed=0, cells=12, features=3):
    draw = np.random.default_rng(seed)
    labels, logits = (draw.random(rows) < 0.3).astype(np.float32), draw.normal(size=rows).astype(np.float32)
    return draw.integers(cells, size=(rows, features)), labels, logits


def by_hand(cells, labels, logits, asked, spread, waiting=0):
    """z of the cells asked for after all rows, straight from the formulas."""
    found = np.zeros((2, *asked.shape))
    for speed, *place in np.ndindex(found.shape):
        error = variance = 0.0
        for row, (own, label, logit) in enumerate(zip(cells, labels, logits, strict=True)):
            score = 1 / (1 + exp(-logit))
            age = len(labels) - 1 - row + waiting
            weight = 2.0 ** (-age / (HALF_LIFE, HALF_LIFE / 10)[speed]) * (own == asked[*place]).sum()
            error += weight * (label - score)
            variance += weight * score * (1 - score)
        found[speed, *place] = error / (variance + STRENGTH * spread)
    return np.concatenate(found, 1)


def told(recent, cells, labels, logits, batch):
    for start in range(0, len(labels), batch):
        part = slice(start, start + batch)
        recent.update(*(torch.from_numpy(one[part]) for one in (cells, labels, logits)))
    return recent


@pytest.mark.parametrize(("batch", "waiting"), [(1, 0), (8, 0), (50, 3)])
def test_errors_by_hand_whatever_the_batches(batch, waiting):
    rows = stream(50)
    recent = told(made(), *rows, batch)
    recent.waiting = waiting
    asked = rows[0][:9]
    expected = by_hand(*rows, asked, spread=0.2, waiting=waiting)
    np.testing.assert_allclose(recent(torch.from_numpy(asked), 0.2).numpy(), expected, rtol=1e-5, atol=1e-7)


def test_sums_do_not_depend_on_the_order_within_a_batch():
    cells, labels, logits = stream(64)
    recent, other = made(), made()
    recent.half_life = other.half_life = 1e18  # ages within the batch, which do depend on it, say nothing then
    told(recent, cells, labels, logits, 64)
    order = np.random.default_rng(1).permutation(64)
    told(other, cells[order], labels[order], logits[order], 64)
    assert torch.equal(recent.errors, other.errors)


def test_a_cell_never_seen_and_one_long_ago_say_nothing():
    recent = told(made(), *stream(20, cells=6), 20)
    assert not recent(torch.tensor([[7, 8, 11]]), 0.2).any()
    recent.waiting = 10**6
    assert recent(torch.tensor([[0, 1, 2]]), 0.2).abs().max() < 1e-12


def test_a_cast_leaves_sums_alone():
    recent = told(made(), *stream(20), 20)
    assert recent.half().errors.dtype == torch.float64
    assert recent.weight.dtype == torch.float16


class TestWithinEvidence:
    def inputs(self, **options):
        return EvidenceInputs(Evidence(bins=4, pair_bins=4, **options), num_numerical=2, offsets=[0, 3], table_rows=8)

    def rows(self, count=40, seed=0):
        draw = np.random.default_rng(seed)
        numbers = draw.normal(size=(count, 2)).astype(np.float32)
        numbers[::7, 0] = np.nan
        places = np.stack([draw.integers(3, size=count), 3 + draw.integers(5, size=count)], 1)
        labels = (draw.random(count) < 0.4).astype(np.float32)
        return tuple(map(torch.from_numpy, (numbers, places, labels)))

    def test_every_row_has_its_cells(self, monkeypatch):
        counted = self.inputs()
        numbers, places, labels = self.rows()
        counted.update(numbers, places, labels)
        found = counted.cells(numbers, places)
        assert found.shape == (40, 5)
        assert not found[:, 0].any()
        assert (found[::7, 1] == 1 + 4).all()  # missing
        assert torch.equal(found[:, 3:], places + 1 + 2 * 5)
        monkeypatch.setattr(native, "_library", None)
        assert torch.equal(counted.cells(numbers, places), found)

    def test_compiled_look_ups_are_plain_ones(self, monkeypatch):
        if native._library is None:
            pytest.skip("the loops are not compiled: python -m daes.native")
        counted = self.inputs(recent=10.0)
        numbers, places, labels = self.rows(65)
        for part in (slice(0, 20), slice(20, 33), slice(33, 65)):
            counted.update(numbers[part], places[part], labels[part], torch.zeros(len(labels[part])))
        counted.recent.waiting = 3
        found = counted.recent_errors(numbers, places)
        assert found.any(0).sum() == 2 * 3  # bins were cut anew at the end
        monkeypatch.setattr(native, "_library", None)
        torch.testing.assert_close(found, counted.recent_errors(numbers, places))

    @pytest.mark.parametrize("options", [{}, {"numbers": False}, {"categories": False}, {"pairs": 1}])
    def test_compiled_sums_have_the_bits_of_plain_ones(self, options, monkeypatch):
        if native._library is None:
            pytest.skip("the loops are not compiled: python -m daes.native")

        def counted():
            made, start = self.inputs(recent=10.0, **options), 0
            numbers, places, labels = self.rows(3000)
            logits = torch.linspace(-4, 4, 3000)
            for count in (1, 7, 300, 40, 33, 1500, 64, 65, 2):  # of some the errors are as old as errors can be
                part = slice(start, start + count)
                made.update(numbers[part], places[part], labels[part], logits[part])
                start += count
            return made.state_dict()

        compiled = counted()
        monkeypatch.setattr(native, "_library", None)
        for name, plain in counted().items():
            assert torch.equal(compiled[name], plain), name

    @pytest.mark.parametrize(("options", "features"), [({"numbers": False}, 3), ({"categories": False}, 3)])
    def test_what_is_not_counted_has_no_errors(self, options, features):
        counted = self.inputs(**options)
        numbers, places, labels = self.rows()
        counted.update(numbers, places, labels, torch.zeros(40))
        assert counted.recent_errors(numbers, places).shape == (40, 2 * features)

    def test_it_can_be_left_out(self):
        counted = self.inputs(recent=None)
        assert counted.recent is None
        assert counted.correction(*self.rows()[:2]) is None

    def test_without_logits_nothing_is_noted(self):
        counted = self.inputs()
        counted.update(*self.rows())
        assert not counted.recent.errors.any()

    def test_new_bins_reset_and_a_merge_forget(self):
        counted, logits = self.inputs(), torch.zeros(40)
        counted.update(*self.rows(), logits)  # bins are cut within it: their errors are those of no bin
        assert not counted.recent.errors[1:11, :2].any()
        assert counted.recent.errors[11:, :2].any()
        other = self.inputs()
        other.update(*self.rows(seed=1), logits)
        counted.merge(other)
        assert not counted.recent.errors[:, :2].any()
        other.reset()
        assert not other.recent.errors[:, :2].any()

    def test_frozen_it_is_gone_and_a_frozen_state_fits(self):
        counted = self.inputs()
        counted.update(*self.rows(), torch.zeros(40))
        state = counted.freeze().state_dict()
        assert not any(name.startswith("recent") for name in state)
        fresh = self.inputs()
        fresh.load_state_dict(state)
        assert fresh.recent is None

    def test_a_state_without_errors_fits(self):
        state = self.inputs(recent=None).state_dict()
        fresh = self.inputs()
        fresh.load_state_dict(state)
        assert fresh.recent is None
        assert fresh.sample is not None


def model_of(stream, **options):
    torch.manual_seed(0)
    return CTRModel(stream.schema, sizes=50, dim=4, **options)


def correcting(model):
    step = TrainingStep(model, TrainConfig())
    step.correcting = True
    return step


def test_a_step_notes_the_errors_of_its_scores():
    data = AdStream(num_rows=240, seed=0)
    step = correcting(model_of(data))
    batches = [step.prepare(batch) for batch in data.iter_batches(data.schema, 40)]
    expected = None
    for number, batch in enumerate(batches):
        evidence = step.model.evidence
        rows = step.model.categorical.rows(batch.categorical)
        if number == 5:  # bins are not cut anew there
            expected = RecentErrors(len(evidence.recent.errors), len(evidence.recent.weight) // 2, 300.0, 20.0)
            expected.load_state_dict(evidence.recent.state_dict())
            cells = evidence.cells(batch.numerical, rows)
        logits = step.score_and_learn(batch, row=40 * number)
    expected.update(cells, batch.label, torch.from_numpy(logits))
    assert torch.equal(step.model.evidence.recent.errors, expected.errors)


@pytest.mark.parametrize("backbone", ["deepfm", "dcnv2"])
def test_a_step_adds_the_correction_and_learns_its_weights(backbone):
    data = AdStream(num_rows=200, seed=0)
    model = model_of(data, backbone=backbone)
    step = correcting(model)
    batch = step.prepare(next(data.iter_batches(data.schema, 200)))
    model.observe(*batch.features)
    model.count(batch, logits=torch.zeros(200))
    correction = model.correction(*batch.features).detach().numpy()
    assert np.abs(correction).max() > 0.01
    with torch.no_grad():
        alone = model(*batch.features).numpy()
    np.testing.assert_allclose(step.score(batch), alone + correction, rtol=1e-5, atol=1e-6)
    before = model.evidence.recent.weight.detach().clone()
    step.learn(batch, row=0)
    moved = model.evidence.recent.weight != before
    assert moved[0]
    assert moved[-1]


def test_compiled_gradients_are_those_of_autograd():
    data = AdStream(num_rows=400, seed=0)
    found = []
    for whole in (True, False):
        data.seek({"row": 0})
        step = correcting(model_of(data))
        if not whole:
            step._whole = None
        for batch in data.iter_batches(data.schema, 100):
            step.score_and_learn(batch, row=0)
        found.append(step.model.evidence.recent.weight.detach())
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found[0], torch.full_like(found[0], 0.1))


def test_a_world_that_changes_is_followed():
    """What an id means turns round every 150 rows: the last rows say so, all rows before say nothing."""
    rows, draw = 6000, np.random.default_rng(0)
    ids = draw.integers(1, 9, size=(rows, 1))
    odds = np.where((ids[:, 0] > 4) ^ (np.arange(rows) // 150 % 2 == 1), 0.9, 0.1)
    labels = (draw.random(rows) < odds).astype(np.float32)
    numbers = draw.normal(size=(rows, 1)).astype(np.float32)
    schema = Schema(label="y", numerical=("x",), categorical=("id",))
    losses = {}
    for recent in (None, 30.0):
        torch.manual_seed(0)
        step = correcting(CTRModel(schema, sizes=20, dim=4, evidence={"recent": recent, "strength": 5.0}))
        loss = []
        for start in range(0, rows, 10):
            part = slice(start, start + 10)
            step.score_and_learn(Batch(numbers[part], ids[part], labels[part]), row=start)
            loss.append(step.loss)
        losses[recent] = np.mean(loss[len(loss) // 2 :])
    assert losses[30.0] < losses[None] - 0.03


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32])
def test_a_cast_of_a_model_leaves_its_counts_alone(kind):
    counted = EvidenceInputs(Evidence(bins=4, pair_bins=4, sample_rows=10), 1, [0], 3)
    counted.update(torch.tensor([[1 / 3], [2e9]]), torch.tensor([[0], [1]]), torch.tensor([1.0, 0.0]), torch.zeros(2))
    counted.recent.errors[0] = torch.tensor([1 / 3, 1 / 7, 1 / 9, 1 / 11, 2**24 + 1])
    counted.row_counts[0] = torch.tensor([2**24 + 1, 3])
    before = {name: one.clone() for name, one in counted.state_dict().items() if not name.endswith("weight")}
    counted.to(kind)
    for name, one in before.items():
        assert torch.equal(counted.state_dict()[name], one), name
        assert counted.state_dict()[name].dtype == one.dtype, name
    assert counted.weight.dtype == kind


def test_cells_that_there_are_not_are_refused():
    recent = RecentErrors(num_cells=3, num_features=1, half_life=10.0, strength=20.0)
    for cells, rows in ((torch.tensor([[3]]), 1), (torch.tensor([[-4]]), 1), (torch.tensor([[0]]), 2)):
        with pytest.raises((IndexError, RuntimeError)):
            recent.update(cells, torch.ones(rows), torch.zeros(rows))


def test_bins_that_were_cut_anew_since_a_score_are_not_mistaken():
    counted = EvidenceInputs(Evidence(bins=4, pair_bins=4), 1, [0], 3)
    numbers, rows = torch.tensor([[5.0]]), torch.tensor([[0]])
    counted.recent_errors(numbers, rows)
    others = torch.arange(8.0)[:, None]
    counted.update(others, torch.zeros(8, 1, dtype=torch.int64), torch.ones(8))
    counted.update(numbers, rows, torch.ones(1), torch.zeros(1))
    noted = counted.recent.errors[:, 0].nonzero().flatten()
    assert torch.equal(noted, counted.cells(numbers, rows)[0])


@pytest.mark.parametrize(("columns", "evidence", "recent"), [(4, 0.2, 0.1), (39, 0.2, 0.1), (99, 8 / 99, 0.04)])
def test_the_weights_of_many_columns_start_smaller(columns, evidence, recent):
    counted = EvidenceInputs(Evidence(), columns, [], 0)
    assert counted.weight.tolist() == pytest.approx([evidence] * columns)
    assert counted.recent.weight.tolist() == pytest.approx([recent] * 2 * (1 + columns))
