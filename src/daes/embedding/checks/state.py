"""Checks of a method's state: when it changes, what it depends on, how it is copied, saved and loaded."""

import pickle
from copy import deepcopy

import torch

from daes.checking import ensure_close, ensure_same, ensure_same_state, state_of
from daes.embedding.base import NumericalEmbedding
from daes.embedding.checks.sample import FlatOutputs, Make, make_sample, new, outputs, ready, started, train_step
from daes.extras import require


def check_eval_changes_nothing(make: Make) -> None:
    """In `eval()`, and in training with `observe_in_forward` off, a forward does not change the state."""
    method = ready(make)
    before = state_of(method)
    sample = make_sample(method, seed=1)
    outputs(method, sample.values * 1e6, sample.context)
    ensure_same_state(state_of(method), before, "the state before and after a forward in eval()")
    method.train().observe_in_forward = False
    outputs(method, sample.values * 1e6, sample.context)
    ensure_same_state(state_of(method), before, "the state before and after a forward that must not observe")


def check_training_observes_first(make: Make) -> None:
    """A forward in training first observes the batch, then encodes it, as BatchNorm does."""
    method, other = started(make), started(make)
    for seed in range(3):
        values = make_sample(method, seed=seed).values
        result = outputs(method, values)
        other.observe(values)
        ensure_same(result, outputs(other.eval(), values), "a forward in training, and observe then a forward")
        ensure_same_state(state_of(method), state_of(other.train()), "the state after it")


def check_seeds_reproduce(make: Make) -> None:
    """Two methods with the same seed and training are bitwise equal."""
    first, second = started(make), started(make)
    for method in (first, second):
        for step in range(3):
            train_step(method, make_sample(method, seed=step))
    ensure_same_state(state_of(first), state_of(second), "the states of two equal runs")


def check_batch_splits(make: Make) -> None:
    """Up to rounding, the statistics of a stream do not depend on how it is split into batches."""
    whole, parts = started(make), started(make)
    sample = make_sample(whole, 500)
    whole.observe(sample.values)
    for batch in torch.split(sample.values, [1, 7, 0, 200, 92, 200]):
        parts.observe(batch)
    probes = make_sample(whole, seed=1)
    ensure_close(
        outputs(parts.eval(), probes.values, probes.context),
        outputs(whole.eval(), probes.values, probes.context),
        "outputs after one batch and after many",
    )


def check_state_round_trip(make: Make) -> None:
    """A new method loads the state, saved as safetensors, strictly, and training continues bitwise equal."""
    safetensors = require("safetensors.torch")
    method = started(make)
    for step in range(2):
        train_step(method, make_sample(method, seed=step))
    loaded = new(make, seed=1).train()
    loaded.load_state_dict(safetensors.load(safetensors.save(method.state_dict())), strict=True)
    _ensure_equal_futures(method, loaded, "the state as loaded")


def check_copies(make: Make) -> None:
    """`deepcopy` and `pickle` give independent methods, whose training continues bitwise equal."""
    method = started(make)
    train_step(method, make_sample(method))
    for name, copy in (("deepcopy", deepcopy(method)), ("pickle", pickle.loads(pickle.dumps(method)))):
        before = state_of(method)
        train_step(deepcopy(copy), make_sample(method, seed=9))
        train_step(copy, make_sample(method, seed=1))
        ensure_same_state(state_of(method), before, f"the state while a {name} is trained")
        other = pickle.loads(pickle.dumps(method))
        train_step(other, make_sample(method, seed=1))
        _ensure_equal_futures(copy, other, f"the state of a {name}")


def check_device(make: Make) -> None:
    """On a CUDA device a method learns and returns the same as on the CPU, up to rounding; skipped without one."""
    if not torch.cuda.is_available():
        return
    here, there = started(make), started(make).cuda()
    for step in range(3):
        sample = make_sample(here, seed=step)
        expected = FlatOutputs(here)(sample.values, sample.context)
        result = FlatOutputs(there)(sample.values.cuda(), sample.context.cuda())
        ensure_close(result.cpu(), expected, "outputs in training on a device and on the CPU", tolerance=1e-4)
    home = there.cpu().eval()
    ensure_close(
        outputs(home, sample.values, sample.context),
        outputs(here.eval(), sample.values, sample.context),
        "outputs after training on a device and on the CPU",
        tolerance=1e-4,
    )


def _ensure_equal_futures(first: NumericalEmbedding, second: NumericalEmbedding, what: str) -> None:
    """The same state, the same outputs, and the same state after more training."""
    ensure_same_state(state_of(second), state_of(first), what)
    sample = make_sample(first, seed=7)
    ensure_same(
        outputs(second.eval(), sample.values, sample.context),
        outputs(first.eval(), sample.values, sample.context),
        f"outputs of {what}",
    )
    for method in (first.train(), second.train()):
        for step in range(2):
            train_step(method, make_sample(method, seed=step + 20))
    ensure_same_state(state_of(second), state_of(first), f"{what}, after more training")
