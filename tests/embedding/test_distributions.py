"""The oracle is `JumpReservoir`, one per column."""

from copy import deepcopy

import numpy as np
import pytest
import torch

from daes.distribution import JumpReservoir
from daes.distribution.base import inverted_cdf
from daes.embedding.distributions import FeatureDistributions
from daes.embedding.knots import LIKELY_LEVELS


def stream(rows=3000, features=3, seed=0, missing=(0.0, 0.3, 0.0)):
    """Columns with ties; some values are missing, a few infinite."""
    rng = np.random.default_rng(seed)
    values = np.round(rng.lognormal(size=(rows, features)), 2).astype(np.float32)
    for feature, share in enumerate(missing):
        values[rng.random(rows) < share, feature] = np.nan
    values[rng.random(rows) < 0.01, features - 1] = np.inf
    return values


def batches(values, sizes=(1, 7, 64, 200)):
    rng = np.random.default_rng(1)
    start = 0
    while start < len(values):
        step = int(rng.choice(sizes))
        yield torch.from_numpy(values[start : start + step])
        start += step


def observe_as_a_device(module, batch):
    """The path of an accelerator, on the CPU's tensors."""
    module.observe_ahead(batch, refresh=module.advance(len(batch)))


PATHS = {"host": FeatureDistributions.observe, "device": observe_as_a_device}


@pytest.fixture(params=PATHS)
def observe(request):
    return PATHS[request.param]


def assert_same_as_reservoirs(module, reservoirs):
    for feature, oracle in enumerate(reservoirs):
        filled = oracle.sample.size
        np.testing.assert_array_equal(module.slots[feature, :filled].numpy(), oracle.sample)
        assert module.count[feature] == oracle.count
        assert module.skipped[feature] == oracle.skipped
        np.testing.assert_equal(float(module.minimum[feature]), oracle.minimum)
        np.testing.assert_equal(float(module.maximum[feature]), oracle.maximum)


@pytest.mark.parametrize("size", [1, 2, 5, 100, 5000])
@pytest.mark.parametrize("skip", ["exact", "paper"])
def test_each_sample_is_that_of_a_jump_reservoir(observe, size, skip):
    values = stream()
    module = FeatureDistributions(3, 4, reservoir_size=size, skip=skip, seed=7)
    oracles = [JumpReservoir(size, skip, 7) for _ in range(3)]
    for batch in batches(values):
        observe(module, batch)
        for feature, oracle in enumerate(oracles):
            oracle.update(batch[:, feature].numpy())
        assert_same_as_reservoirs(module, oracles)


def test_knots_are_the_quantiles_of_the_sample(observe):
    module = FeatureDistributions(3, 10, reservoir_size=200, tolerance=0.0)
    for batch in batches(stream()):
        observe(module, batch)
        for feature in range(3):
            filled = min(int(module.count[feature]), 200)
            if not filled:
                assert module.knots[feature].isnan().all()
                continue
            ordered = np.sort(module.slots[feature, :filled].numpy())
            expected = np.r_[
                module.minimum[feature], inverted_cdf(ordered, np.arange(1, 10) / 10), module.maximum[feature]
            ]
            np.testing.assert_array_equal(module.knots[feature], expected)
            likely = inverted_cdf(ordered, LIKELY_LEVELS).astype(np.float64)
            np.testing.assert_allclose(module.centre[feature], likely.mean(), rtol=1e-6)
            np.testing.assert_allclose(module.scale[feature], likely.std(), rtol=1e-6)


@pytest.mark.parametrize("tolerance", [0.02, 0.2])
def test_no_rank_lags_behind_by_more_than_the_tolerance(tolerance):
    values = stream(8000, missing=(0.0, 0.5, 0.0))
    module = FeatureDistributions(3, 20, reservoir_size=500, tolerance=tolerance)
    refreshed = 0
    before = module.knots.clone()
    for batch in batches(values, sizes=(16,)):
        module.observe(batch)
        refreshed += int(not torch.equal(module.knots[:, 1:-1], before[:, 1:-1]))
        before = module.knots.clone()
        for feature in range(3):
            ordered = np.sort(module.slots[feature, : min(int(module.count[feature]), 500)].numpy())
            at_most = np.searchsorted(ordered, module.knots[feature, 1:-1].numpy(), side="right") / ordered.size
            below = np.searchsorted(ordered, module.knots[feature, 1:-1].numpy(), side="left") / ordered.size
            levels = np.arange(1, 20) / 20
            assert (at_most + tolerance + 1e-9 >= levels).all()
            assert (below - tolerance - 1e-9 <= levels).all()
    assert refreshed < 500  # of 500 batches


def test_a_device_refreshes_every_sixteen_batches_at_the_latest():
    module = FeatureDistributions(1, 4, reservoir_size=10, tolerance=0.9)
    for batch in torch.rand(200, 10, 1).unbind():
        observe_as_a_device(module, batch)
    stale = module.knots.clone()
    module.slots.fill_(0.5)
    for _ in range(16):
        observe_as_a_device(module, torch.full((1, 1), 0.5))
    assert not torch.equal(module.knots[:, 1:-1], stale[:, 1:-1])


def test_a_feature_that_appears_late_is_known_at_once():
    module = FeatureDistributions(2, 4, reservoir_size=50)
    for _ in range(100):
        module.observe(torch.stack([torch.rand(20), torch.full((20,), torch.nan)], 1))
    assert module.knots[1].isnan().all()
    module.observe(torch.tensor([[0.5, 3.0]]))
    assert module.knots[1].tolist() == [3.0] * 5


def test_bounds_are_the_outer_knots(observe):
    module = FeatureDistributions(2, 4, bounds=[(0.0, 10.0), (-1.0, 1.0)])
    observe(module, torch.tensor([[2.0, torch.nan], [30.0, torch.nan]]))
    assert module.knots[0].tolist() == [0.0, 2.0, 2.0, 10.0, 10.0]
    assert module.knots[1].isnan().all()


class TestState:
    def test_a_saved_state_goes_on_bit_for_bit(self, observe):
        values = stream()
        parts = list(batches(values))
        one = FeatureDistributions(3, 10, reservoir_size=100, tolerance=0.05, seed=3)
        for batch in parts[:20]:
            observe(one, batch)
        other = FeatureDistributions(3, 10, reservoir_size=100, tolerance=0.05, seed=3)
        other.load_state_dict(one.state_dict())
        third = deepcopy(one)
        for batch in parts[20:]:
            for module in (one, other, third):
                observe(module, batch)
            for name, buffer in one.state_dict().items():
                if name != "slots":
                    assert torch.equal(buffer.nan_to_num(), other.state_dict()[name].nan_to_num()), name
                    assert torch.equal(buffer.nan_to_num(), third.state_dict()[name].nan_to_num()), name
        assert torch.equal(one.slots[:, :-1], other.slots[:, :-1])

    def test_the_state_is_tensors_alone_and_fits_safetensors(self):
        from safetensors.torch import load, save

        module = FeatureDistributions(2, 4, reservoir_size=50)
        module.observe(torch.rand(200, 2))
        state = module.state_dict()
        assert all(isinstance(value, torch.Tensor) for value in state.values())
        assert {"slots", "count", "skipped", "minimum", "maximum", "knots"} <= state.keys()
        again = FeatureDistributions(2, 4, reservoir_size=50)
        again.load_state_dict(load(save(state)))
        assert torch.equal(again.knots, module.knots)

    def test_frozen_is_small_and_stays(self):
        module = FeatureDistributions(2, 10, reservoir_size=10_000)
        module.observe(torch.rand(20_000, 2))
        knots = module.knots.clone()
        assert module.freeze() is module
        assert not module.follows
        module.observe(torch.rand(5000, 2) + 9)
        assert torch.equal(module.knots, knots)
        assert sum(buffer.nbytes for buffer in module.state_dict().values()) < 1000
        again = FeatureDistributions(2, 10, reservoir_size=10_000)
        again.load_state_dict(module.state_dict())
        assert not again.follows
        assert torch.equal(again.knots, knots)

    def test_a_frozen_module_takes_up_a_living_state(self):
        living = FeatureDistributions(1, 4, reservoir_size=20)
        living.observe(torch.rand(100, 1))
        frozen = FeatureDistributions(1, 4, reservoir_size=20).freeze()
        frozen.load_state_dict(living.state_dict())
        assert frozen.follows
        for module in (living, frozen):
            module.observe(torch.arange(100.0).unsqueeze(1))
        assert torch.equal(living.slots, frozen.slots)

    def test_a_cast_leaves_statistics_in_float32_at_least(self):
        module = FeatureDistributions(1, 4, reservoir_size=20)
        module.observe(torch.rand(100, 1))
        before = module.slots.clone()
        module.to(torch.bfloat16)
        assert module.slots.dtype == module.knots.dtype == torch.float32
        assert torch.equal(module.slots, before)
        module.double()
        assert (module.slots.dtype, module.log_threshold.dtype, module.count.dtype) == (
            torch.float64,
            torch.float64,
            torch.int64,
        )

    def test_another_size_is_refused(self):
        state = FeatureDistributions(1, 4, reservoir_size=20).state_dict()
        with pytest.raises(RuntimeError, match="size mismatch"):
            FeatureDistributions(1, 4, reservoir_size=30).load_state_dict(state)


class TestMerge:
    @pytest.mark.parametrize("size", [1, 5, 300])
    def test_as_the_reservoirs_merge(self, observe, size):
        values = [stream(seed=1), stream(1000, seed=2), stream(seed=3)]
        modules = [FeatureDistributions(3, 4, reservoir_size=size, seed=seed) for seed in (0, 1)]
        oracles = [[JumpReservoir(size, seed=seed) for _ in range(3)] for seed in (0, 1)]
        for module, reservoirs, part in zip(modules, oracles, values[:2], strict=True):
            for batch in batches(part):
                observe(module, batch)
                for feature, oracle in enumerate(reservoirs):
                    oracle.update(batch[:, feature].numpy())
        modules[0].merge(modules[1])
        for mine, theirs in zip(*oracles, strict=True):
            mine.merge(theirs)
        assert_same_as_reservoirs(modules[0], oracles[0])
        saved = FeatureDistributions(3, 4, reservoir_size=size)
        saved.load_state_dict(modules[0].state_dict())
        for batch in batches(values[2]):  # and they go on alike
            observe(modules[0], batch)
            observe(saved, batch)
            for feature, oracle in enumerate(oracles[0]):
                oracle.update(batch[:, feature].numpy())
        assert_same_as_reservoirs(modules[0], oracles[0])
        assert_same_as_reservoirs(saved, oracles[0])

    def test_features_without_missing_values_share_a_schedule_afterwards(self):
        modules = [FeatureDistributions(3, 4, reservoir_size=50, seed=seed) for seed in (0, 1)]
        for module in modules:
            module.observe(torch.rand(500, 3))
        modules[0].merge(modules[1])
        assert len(modules[0]._tables()) == 1

    @pytest.mark.parametrize(
        ("other", "message"),
        [
            (lambda: FeatureDistributions(2, 4, reservoir_size=9), "same reservoir_size to merge, got 9 for 20"),
            (lambda: FeatureDistributions(3, 4, reservoir_size=20), "same num_features"),
            (lambda: FeatureDistributions(2, 4, reservoir_size=20).freeze(), "frozen"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, other, message):
        with pytest.raises(ValueError, match=message):
            FeatureDistributions(2, 4, reservoir_size=20).merge(other())
        module = FeatureDistributions(2, 4)
        with pytest.raises(ValueError, match="this very module"):
            module.merge(module)


def test_a_reservoir_that_is_taken_out_goes_on_alike():
    values = stream()
    module = FeatureDistributions(3, 4, reservoir_size=50, seed=2)
    module.observe(torch.from_numpy(values[:1000]))
    taken = module.reservoir(1)
    module.observe(torch.from_numpy(values[1000:]))
    taken.update(values[1000:, 1])
    np.testing.assert_array_equal(taken.sample, module.slots[1, :50].numpy())
    np.testing.assert_array_equal(module.quantile([0.1, 0.5])[1], taken.quantile([0.1, 0.5]))


def test_empty_batches_and_batches_of_missing_values():
    module = FeatureDistributions(2, 4)
    module.observe(torch.empty(0, 2))
    module.observe(torch.full((3, 2), torch.nan))
    assert module.skipped.tolist() == [3, 3]
    assert module.count.tolist() == [0, 0]
    assert module.knots.isnan().all()
    assert module.place(torch.ones(1, 2)).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_features": 0}, "num_features must be a positive integer, got 0"),
        ({"num_knots": 0}, "num_knots must be a positive integer"),
        ({"reservoir_size": 0}, "reservoir_size must be a positive integer"),
        ({"seed": -1}, "seed must be"),
        ({"skip": "fast"}, "skip must be"),
        ({"tolerance": 2.0}, "tolerance must lie"),
        ({"bounds": (3.0, 1.0)}, "bounds must be finite pairs"),
        ({"bounds": (1.0, 2.0, 3.0)}, r"bounds must be a pair .* got \(1.0, 2.0, 3.0\)"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        FeatureDistributions(**{"num_features": 1, **arguments})


@pytest.mark.parametrize("shape", [(10, 2), (10, 4), (10,), (10, 3, 1)])
def test_batches_of_other_features_are_refused(shape):
    module = FeatureDistributions(3)
    with pytest.raises(ValueError, match=r"values must have shape \(B, 3\), got \(10,"):
        module.observe(torch.ones(shape))
    assert not module.count.any()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_device_nothing_is_read_back():
    module = FeatureDistributions(3, 10, reservoir_size=100).cuda()
    oracle = FeatureDistributions(3, 10, reservoir_size=100)
    parts = [batch.cuda() for batch in batches(stream())]
    module.observe(parts[0])
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in parts[1:]:
            module.observe(batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for batch in parts:
        oracle.observe(batch.cpu())
    assert torch.equal(module.slots[:, :100].cpu(), oracle.slots[:, :100])


def test_a_part_may_have_none_of_the_features_of_a_schedule():
    apart, whole = (FeatureDistributions(2, 10, reservoir_size=50) for _ in range(2))
    for seed, made in ((0, apart), (0, whole)):
        other = FeatureDistributions(2, 10, reservoir_size=50, seed=1)
        for one, part in ((made, stream(300, 2, seed, (0.3, 0.0))), (other, stream(200, 2, 1, (0.0, 0.0)))):
            one.observe(torch.from_numpy(part))
        made.merge(other)
    assert len(apart._tables()) == 2  # as one feature has fewer values, each has a schedule of its own
    if not apart.divide(0, 2):
        pytest.skip("features are divided by compiled loops")
    rows = torch.from_numpy(stream(300, 2, 2, (0.3, 0.0)))
    apart.observe(rows)
    whole.observe(rows)
    assert torch.equal(apart.slots[0], whole.slots[0])


def test_a_state_of_other_numbers_is_read_within_bounds():
    made = FeatureDistributions(2, 10, reservoir_size=50)
    made.observe(torch.from_numpy(stream(300, 2, 0, (0.0, 0.0))))
    state = made.state_dict()
    made.load_state_dict(state | {"pending": torch.tensor([-(10**9), -1])})
    made.observe(torch.from_numpy(stream(300, 2, 1, (0.0, 0.0))))
    assert made.count[0] == 600
    made.load_state_dict(state | {"restarts": torch.tensor([[0, 0, -40], [0, 0, 0]])})
    with pytest.raises(ValueError, match="filled within"):
        made.observe(torch.from_numpy(stream(300, 2, 1, (0.0, 0.0))))
