"""The step itself; what surrounds it is tested with the trainer, the offline protocol, the classifier and graphs."""

import threading
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from daes.model import CTRModel
from daes.stream.dataset import Dataset
from daes.training.config import TrainConfig
from daes.training.step import BadBatch, TrainingError, TrainingStep, random_state, set_random_state

CONFIG = TrainConfig(batch_size=100, optimizer="adam", learning_rate=0.01)


def state_of(step):
    return {name: tensor.clone() for name, tensor in step.model.state_dict().items()}


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name in left:
        torch.testing.assert_close(left[name], right[name], rtol=0, atol=0, equal_nan=True, msg=name)


def test_a_prepared_batch_is_used_as_it_is(make_rows, make_model):
    step, batch = TrainingStep(make_model(), CONFIG), make_rows(100)
    prepared = step.prepare(batch)
    assert step.prepare(prepared) is prepared
    assert len(prepared) == 100
    np.testing.assert_array_equal(step.score(prepared), step.score(batch))


def test_scoring_changes_nothing(make_rows, make_model):
    step = TrainingStep(make_model(categorical_options={"mode": "vocabulary"}), CONFIG)
    step.learn(make_rows(100), 0)
    before, random = state_of(step), torch.get_rng_state()
    first = step.score(make_rows(50))
    assert first.dtype == np.float32
    np.testing.assert_array_equal(first, step.score(make_rows(50)))
    assert_same(before, state_of(step))
    assert torch.equal(random, torch.get_rng_state())


@pytest.mark.parametrize("weighted", [False, True])
def test_learning_is_a_step_on_the_weighted_mean_cross_entropy(make_rows, make_model, weighted):
    batch = replace(make_rows(100), weight=np.linspace(0, 2, 100, dtype=np.float32) if weighted else None)
    step, other = TrainingStep(make_model(), CONFIG), make_model().train()
    torch.manual_seed(1)
    assert step.learn(batch, 0)
    torch.manual_seed(1)
    logits = other(torch.from_numpy(batch.numerical), torch.from_numpy(batch.categorical))
    losses = binary_cross_entropy_with_logits(logits, torch.from_numpy(batch.label), reduction="none")
    weights = torch.ones(100) if batch.weight is None else torch.from_numpy(batch.weight)
    loss = (losses * weights).sum() / weights.sum()
    loss.backward()
    assert step.loss == pytest.approx(loss.item(), rel=1e-6)
    for (name, mine), theirs in zip(step.model.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-8, msg=name)


def test_learning_needs_labels_and_otherwise_changes_nothing(make_rows, make_model):
    step = TrainingStep(make_model(), CONFIG)
    before = state_of(step)
    with pytest.raises(ValueError, match="batch must have labels to compute a loss, got None"):
        step.learn(replace(make_rows(100), label=None), 0)
    assert_same(before, state_of(step))


def test_a_loaded_step_continues_with_the_same_bits(make_rows, make_model):
    rows = make_rows(300)
    step = TrainingStep(make_model(), replace(CONFIG, bad_batch="skip"))
    step.learn(rows[:100], 0)
    step.skip(100, "unreadable")
    other = TrainingStep(make_model(seed=5), replace(CONFIG, bad_batch="skip"))
    other.load_state_dict(deepcopy(step.state_dict()))
    assert other.bad_batches == [BadBatch(100, "unreadable")]
    for one in (step, other):
        torch.manual_seed(2)
        one.learn(rows[200:], 200)
    assert step.loss == other.loss
    assert_same(state_of(step), state_of(other))


def test_only_bad_batches_in_a_row_end_a_run(make_rows, make_model):
    step = TrainingStep(make_model(), replace(CONFIG, bad_batch="skip"))
    for _ in range(20):
        step.skip(0, "unreadable")
    assert step.learn(make_rows(100), 0)
    for row in range(20):
        step.skip(row, "unreadable")
    with pytest.raises(TrainingError, match="21 bad batches in a row, the last at row 99: unreadable"):
        step.skip(99, "unreadable")
    assert len(step.bad_batches) == 41


def test_random_states_are_restored():
    device = torch.device("cpu")
    state = random_state(device)
    first = torch.rand(3)
    set_random_state(state, device)
    assert torch.equal(first, torch.rand(3))


class Scorer:
    """A thread that scores the same rows over and over, with `score`, until the block ends."""

    def __init__(self, score):
        self.results = []
        self._score = score
        self._ended = threading.Event()
        self._error = None
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            while not self._ended.is_set():
                self.results.append(self._score().tobytes())
        except BaseException as error:
            self._error = error

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("backbone", ["deepfm", "fnn", "widedeep"])
@pytest.mark.parametrize("by", ["score", "predict_proba"])
def test_scoring_beside_learning_sees_whole_steps_and_changes_nothing(by, backbone):
    data = Dataset.open("adstream:3000")
    rows = next(data.iter_batches(data.schema, 3000))
    shown = rows[:50]

    def make():
        torch.manual_seed(0)
        options = {"mode": "vocabulary", "min_count": 2}
        more = {"dropout": 0.3, "batch_norm": True}
        model = CTRModel.from_sample(
            data.schema, rows[:500], backbone=backbone, dim=4, categorical_options=options, backbone_options=more
        )
        step = TrainingStep(model, TrainConfig(batch_size=100))
        return step, (lambda: step.score(shown)) if by == "score" else (lambda: model.predict_proba(shown))

    def learn(step):
        torch.manual_seed(1)
        for start in range(0, 3000, 100):
            step.learn(rows[start : start + 100], start)
            yield

    alone, score = make()
    between = {score().tobytes(), *(score().tobytes() for _ in learn(alone))}
    together, score = make()
    with Scorer(score) as scorer:
        for _ in learn(together):
            pass
    assert len(set(scorer.results)) > 3
    assert set(scorer.results) <= between
    expected = alone.model.state_dict()
    for name, tensor in together.model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


def passed(step, rows, how):
    """A pass over the rows in batches of 100; the logits."""
    torch.manual_seed(3)
    found = []
    for start in range(0, len(rows), 100):
        batch = rows[start : start + 100]
        if how == "together":
            found.append(step.score_and_learn(batch, start))
        else:
            found.append(step.score(batch))
            step.learn(batch, start)
    return np.concatenate(found)


@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
@pytest.mark.parametrize(
    ("options", "forwards"),
    [
        ({}, 1),
        ({"method": "daes-gate", "backbone": "deepfm"}, 1),
        ({"categorical_options": {"mode": "vocabulary", "min_count": 2}}, 1),
        ({"backbone_options": {"dropout": 0.3, "batch_norm": True}}, 2),
        ({"backbone": "autoint", "backbone_options": {"dropout": 0.3}}, 2),
    ],
)
def test_scoring_and_learning_together_is_one_after_the_other(make_rows, make_model, options, forwards, optimizer):
    rows, config = make_rows(850), replace(CONFIG, optimizer=optimizer)
    together, apart = (TrainingStep(make_model(**options), config) for _ in range(2))
    calls = []
    together.model.register_forward_hook(lambda *_: calls.append(1))
    np.testing.assert_array_equal(passed(together, rows, "together"), passed(apart, rows, "apart"))
    assert_same(state_of(together), state_of(apart))
    assert len(calls) == 9 * forwards + (forwards == 1)  # the first batch is observed between its score and its step


def test_a_module_that_is_not_known_is_scored_in_eval_mode(make_rows, make_model):
    class Doubled(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) * (2.0 if self.training else 1.0)

    model, rows = make_model(), make_rows(300)
    model.backbone.mlp.readout.__class__ = Doubled
    model.backbone.mlp.readout.forward = lambda x: Doubled.forward(model.backbone.mlp.readout, x).squeeze(-1)
    step = TrainingStep(model, CONFIG)
    step.learn(rows[:100], 0)
    expected = step.score(rows[100:200])
    np.testing.assert_array_equal(step.score_and_learn(rows[100:200], 100), expected)


def test_a_batch_is_observed_after_its_step_but_for_the_first(make_rows, make_model):
    rows, step = make_rows(200), TrainingStep(make_model(), CONFIG)
    seen = []
    step.model.register_forward_hook(lambda model, *_: seen.append(int(model.distributions.count.max())))
    step.learn(rows[:100], 0)
    step.learn(rows[100:], 100)
    assert seen[0] == seen[1] > 0
    assert int(step.model.distributions.count.max()) > seen[1]
