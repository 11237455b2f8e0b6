"""The oracles are `JumpReservoir`, one per column, and the plain version for devices."""

from copy import deepcopy

import numpy as np
import pytest
import torch

from daes.distribution import JumpReservoir
from daes.distribution.base import rank_of
from daes.embedding.distributions import FeatureDistributions
from daes.embedding.kernels import usable

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("small_tiles")


def stream(rows, features, seed=0):
    """Columns with ties, zeros of both signs, missing and infinite values; the last is missing at first."""
    random = np.random.default_rng(seed)
    values = np.round(random.normal(size=(rows, features)), 1).astype(np.float32)
    for feature in range(1, features):
        values[random.random(rows) < 0.2 * feature, feature] = np.nan
    values[random.random(values.shape) < 0.02] = np.inf
    values[: rows // 3, -1] = np.nan
    return torch.from_numpy(values)


def batches(values, device):
    random = np.random.default_rng(1)
    start = 0
    while start < len(values):
        step = int(random.choice([1, 40, 400]))
        yield values[start : start + step].to(device)
        start += step


def assert_equal(mine, theirs):
    for (name, one), other in zip(mine.named_buffers(), theirs.buffers(), strict=True):
        if name in ("centre", "scale"):
            torch.testing.assert_close(one.cpu(), other.cpu(), rtol=1e-6, atol=0)
        elif name not in ("pending", "lag"):
            one, other = (one[:, :-1], other[:, :-1]) if name == "slots" else (one, other)
            torch.testing.assert_close(one.cpu(), other.cpu(), rtol=0, atol=0, equal_nan=True, msg=name)


@pytest.mark.parametrize(
    ("size", "options"), [(5, {}), (100, {"num_knots": 1}), (100, {"bounds": (-1.0, 1.0), "skip": "paper"}), (999, {})]
)
def test_samples_and_knots_are_those_of_the_oracles(kernel_device, size, options):
    values = stream(900, 3)
    arguments = {"num_knots": 7, "reservoir_size": size, "seed": 7, "tolerance": 0.0, **options}
    fast = FeatureDistributions(3, **arguments).to(kernel_device)
    plain = FeatureDistributions(3, **arguments)
    oracles = [JumpReservoir(size, arguments.get("skip", "exact"), 7) for _ in range(3)]
    assert usable(fast.slots)
    for batch in batches(values, kernel_device):
        for module in (fast, plain):
            module.advance(len(batch))
        fast.observe_ahead(batch, refresh=False)
        plain._observe_by_torch(batch.cpu(), plain._rows, refresh=False)
        for feature, oracle in enumerate(oracles):
            oracle.update(batch[:, feature].cpu().numpy())
    fast.observe_ahead(batch[:0], refresh=True)
    plain._refresh(slice(None), min(plain._rows, size))
    assert_equal(fast, plain)
    for feature, oracle in enumerate(oracles):
        np.testing.assert_array_equal(fast.slots[feature, : oracle.sample.size].cpu().numpy(), oracle.sample)
        assert fast.count[feature] == oracle.count
        assert fast.skipped[feature] == oracle.skipped


def test_features_that_were_merged_go_on_alike(kernel_device):
    """A merge restarts each feature's schedule where that feature stands."""
    values = stream(600, 3)
    parts = [FeatureDistributions(3, 4, reservoir_size=50, seed=seed, tolerance=0.0) for seed in (1, 2)]
    for part, rows in zip(parts, values[:400].split(200), strict=True):
        part.observe(rows)
    parts[0].merge(parts[1])
    fast, plain = deepcopy(parts[0]).to(kernel_device), parts[0]
    fast.observe_ahead(values[400:].to(kernel_device), refresh=fast.advance(200))
    plain.advance(200)
    plain._observe_by_torch(values[400:], plain._rows, refresh=True)
    assert len(fast._tables()) > 1
    assert_equal(fast, plain)


def test_nothing_but_counters_changes_where_nothing_is_accepted(kernel_device):
    module = FeatureDistributions(2, 4, reservoir_size=3).to(kernel_device)
    rows = torch.randn(300_000, 2, device=kernel_device)
    if kernel_device.type == "cuda":
        module.observe_ahead(rows, refresh=module.advance(len(rows)))
    else:
        module.cpu()._observe_on_host(rows)
    before = module.slots.clone()
    quiet = torch.zeros(1, 2, device=kernel_device)
    module.observe_ahead(quiet, refresh=module.advance(1) and False)
    assert torch.equal(module.slots, before)
    assert module.count.tolist() == [300_001] * 2


def test_acceptances_on_a_device_stay_where_they_are(kernel_device):
    module = FeatureDistributions(1, 4, reservoir_size=20).to(kernel_device)
    module.advance(10)
    first = [tensor.data_ptr() for tensor in module.recorded()]
    for _ in range(8):
        module.advance(module._rows)
    assert [tensor.data_ptr() for tensor in module.recorded()] == first
    for _ in range(5):
        module.advance(module._rows)
    positions, slots, _ = (tensor.cpu() for tensor in module.recorded())
    schedule = JumpReservoir(20).schedule.take(module._rows)
    np.testing.assert_array_equal(positions[: schedule.slots.size], schedule.positions)
    np.testing.assert_array_equal(slots[: schedule.slots.size], schedule.slots)


@pytest.mark.parametrize("tiles", [0, 1 / 64, 2 + 1 / 64])
@pytest.mark.parametrize("kind", ["lognormal", "ties", "both signs", "two far apart", "in order", "tiny"])
def test_quantiles_of_many_tiles_are_those_of_a_sort(kernel_device, monkeypatch, tiles, kind):
    from daes.embedding.kernels import observation

    monkeypatch.setattr(observation, "_RANKS", 2)
    random, rows = np.random.default_rng(3), 5 * observation.TILE
    values = {
        "lognormal": random.lognormal(0, 3, rows),
        "ties": random.integers(0, 3, rows) * random.choice([0.0, -0.0, 1.0], rows),
        "both signs": random.standard_cauchy(rows),
        "two far apart": np.where(np.arange(rows) < rows // 5, -3e38, 1e-42),
        "in order": np.arange(rows) - 100.0,  # tiles that have nothing in common
        "tiny": random.normal(0, 1e-44, rows),
    }[kind].astype(np.float32)
    slots = torch.from_numpy(np.stack([values, values[::-1]])).to(kernel_device)
    levels = torch.tensor([1e-9, 0.01, 0.25, 1 / 3, 0.5, 0.75, 1.0, 0.999], dtype=torch.float64, device=kernel_device)
    count = torch.tensor([int(tiles * observation.TILE), rows], device=kernel_device)
    knots = torch.full((2, len(levels) + 1), torch.inf, device=kernel_device)
    knots[:, 0] = -torch.inf
    centre, scale = torch.zeros(2, device=kernel_device), torch.zeros(2, device=kernel_device)
    observation.refresh(slots, count, levels, knots, centre, scale)
    for feature, many in enumerate(count.tolist()):
        wanted = np.array([np.nan] * 7 + [0.0])  # of nothing
        if many:
            ranks = rank_of(levels.cpu().numpy(), many).astype(int)
            wanted = np.sort(slots[feature, :many].cpu().numpy())[ranks - 1]
        np.testing.assert_array_equal([*knots[feature, 1:-1].tolist(), float(centre[feature])], wanted)
