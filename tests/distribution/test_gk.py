"""Greenwald–Khanna: the rank error is a hard bound, on every stream, in every split, after every merge."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daes.distribution.gk import GKSketch
from daes.distribution.order_statistics import OrderStatistics

NAN = float("nan")
LEVELS = np.linspace(0, 1, 1501)


def van_der_corput(size):
    """0, 1/2, 1/4, 3/4, 1/8, …: every value falls into the middle of a gap."""
    return np.array([int(f"{i:b}"[::-1], 2) / 2 ** i.bit_length() for i in range(size)])


def zoomed_in(size):
    """Ever narrower blocks, each inside the one before, so that new values always crowd between two old ones."""
    low, high, blocks = 0.0, 1.0, []
    for block in range(40):
        blocks.append(np.linspace(low, high, size // 40 + (block < size % 40)))
        low, high = low + 0.3 * (high - low), high - 0.4 * (high - low)
    return np.concatenate(blocks)


STREAMS = {
    "sorted": lambda size, rng: np.arange(float(size)),
    "reversed": lambda size, rng: -np.arange(float(size)),
    "random": lambda size, rng: rng.normal(size=size),
    "heavy_tailed": lambda size, rng: np.exp(5 * rng.normal(size=size)),
    "ties": lambda size, rng: rng.integers(0, 7, size=size).astype(float),
    "constant": lambda size, rng: np.full(size, 0.1),
    "zero_inflated": lambda size, rng: np.where(rng.random(size) < 0.6, 0.0, rng.exponential(size=size)),
    "drifting": lambda size, rng: np.linspace(0, 50, size) + rng.normal(size=size),
    "outside_in": lambda size, rng: np.where(np.arange(size) % 2, 1, -1) * np.arange(size, 0.0, -1),
    "inside_out": lambda size, rng: np.where(np.arange(size) % 2, 1, -1) * np.arange(float(size)),
    "gap_halving": lambda size, rng: van_der_corput(size),
    "shrinking": lambda size, rng: rng.normal(size=size) * np.geomspace(1, 1e-12, size),
    "zoomed_in": lambda size, rng: zoomed_in(size),
}


def stream(name, size, seed=0):
    return STREAMS[name](size, np.random.default_rng(seed))


def tuples_allowed(sketch):
    """O(log(ε·n)/ε), the constant being 1."""
    return (1 + math.log2(1 + sketch.epsilon * sketch.count)) / sketch.epsilon


def fed(values, epsilon=0.01, batch=8192):
    sketch = GKSketch(epsilon)
    for start in range(0, len(values), batch):
        sketch.update(values[start : start + batch])
        assert sketch.num_tuples <= tuples_allowed(sketch)
    return sketch


def just_below(values):
    with np.errstate(over="ignore"):
        return np.nextafter(values, -np.inf)


def assert_within_bound(sketch, values, epsilon=None):
    """Every quantile has a rank within ε·n of the wanted one, every CDF is within ε; both by counting in the stream."""
    epsilon = sketch.epsilon if epsilon is None else epsilon
    ordered = np.sort(values)
    size = len(ordered)
    found = sketch.quantile(LEVELS)
    first = np.searchsorted(ordered, found, side="left") + 1
    last = np.searchsorted(ordered, found, side="right")
    assert (first <= last).all(), "a quantile is not a value of the stream"
    wanted = np.maximum(1, np.ceil(LEVELS * size - 1e-9))
    distance = np.maximum(np.maximum(first - wanted, wanted - last), 0)
    assert distance.max() <= epsilon * size
    probes = ordered[:: max(1, size // 2000)]
    probes = np.concatenate((probes, just_below(probes)))
    truth = np.searchsorted(ordered, probes, side="right") / size
    assert np.abs(sketch.cdf(probes) - truth).max() <= epsilon
    assert (found[1:] >= found[:-1]).all()
    assert (np.diff(sketch.cdf(np.sort(probes))) >= 0).all()
    assert sketch.quantile([0.0, 1.0]).tolist() == [ordered[0], ordered[-1]]
    assert sketch.cdf([just_below(ordered[0]), ordered[-1]]).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("batch", [1, 7, 8192, 10**9])
@pytest.mark.parametrize("name", STREAMS)
def test_rank_error_never_passes_epsilon(name, batch):
    sizes = {0.05: 1500, 0.01: 4000} if batch < 8192 else {0.05: 3000, 0.01: 12_345, 0.001: 30_000}
    for epsilon, size in sizes.items():
        values = stream(name, size)
        assert_within_bound(fed(values, epsilon, batch), values)


def test_the_bound_is_used_up():
    """An error far below ε·n would mean that memory is wasted; and that the test above sees nothing."""
    values = stream("random", 50_000)
    sketch = fed(values, epsilon=0.01)
    with pytest.raises(AssertionError):
        assert_within_bound(sketch, values, epsilon=0.005)
    assert sketch.num_tuples < 100


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(0, 5).map(float)), max_size=30),
    st.sampled_from([0.02, 0.1, 0.3]),
)
def test_rank_error_on_any_batches(batches, epsilon):
    sketch = GKSketch(epsilon)
    for batch in batches:
        sketch.update(batch)
    values = np.array([value for batch in batches for value in batch])
    assert sketch.count == values.size
    if values.size:
        assert_within_bound(sketch, values)


def test_few_values_are_exact():
    values = stream("random", 100)
    sketch = fed(values, epsilon=0.0099, batch=9)
    ordered = sorted(values)
    # 0.07·100 > 7 in floats: the ranks must not be taken from such products.
    assert sketch.quantile(np.arange(1, 101) / 100).tolist() == ordered
    assert sketch.cdf(ordered).tolist() == [rank / 100 for rank in range(1, 101)]


@pytest.mark.parametrize("batch", [1, 50, 1000])
def test_an_adversary_who_sees_the_summary(batch):
    """Always into the gap of least knowledge: the strategy behind the lower bounds for such summaries."""
    sketch, values = GKSketch(0.02), [np.linspace(0, 1, 50)]
    sketch.update(values[0])
    for _ in range(8000 // batch if batch > 1 else 2000):
        state = sketch.state_dict()
        width = state["high"][1:] - state["low"][:-1]
        room = np.diff(state["values"]) > 1e-13 * np.abs(state["values"]).max()
        widest = int(np.argmax(width * room))
        new = np.linspace(state["values"][widest], state["values"][widest + 1], batch + 2)[1:-1]
        values.append(new)
        sketch.update(new)
        assert sketch.num_tuples <= tuples_allowed(sketch)
    assert_within_bound(sketch, np.concatenate(values))


def test_memory_hardly_grows_with_the_stream():
    rng = np.random.default_rng(1)
    sketch, sizes = GKSketch(0.005), []
    for _ in range(100):
        sketch.update(rng.normal(size=8192))
        sizes.append(sketch.num_tuples)
    assert max(sizes) < 1 / 0.005
    assert max(sizes[50:]) < 1.2 * max(sizes[:50])
    assert sketch.nbytes == 24 * sketch.num_tuples


@pytest.mark.parametrize("epsilon", [0.01, 0.001])
def test_merging_keeps_epsilon(epsilon):
    names = ["random", "zero_inflated", "ties", "sorted", "reversed", "zoomed_in", "heavy_tailed", "drifting"]
    streams = [stream(name, 500 * (i + 1) ** 2, seed=i) for i, name in enumerate(names)]
    total = GKSketch(epsilon)
    for i, values in enumerate(streams):
        part = fed(values, epsilon)
        before = part.state_dict()
        sizes = total.num_tuples + part.num_tuples
        total.merge(part)
        assert total.num_tuples <= sizes
        assert_within_bound(total, np.concatenate(streams[: i + 1]))
        assert part.state_dict().keys() == before.keys()
        assert all(np.array_equal(part.state_dict()[key], before[key]) for key in before)
    more = stream("random", 5000, seed=99)
    total.update(more)
    assert_within_bound(total, np.concatenate([*streams, more]))


def test_merging_pairwise_keeps_epsilon_and_the_size_comes_down_again():
    epsilon = 0.01
    values = np.random.default_rng(2).normal(size=(64, 4000))
    sketches = [fed(part, epsilon) for part in values]
    sizes = sum(sketch.num_tuples for sketch in sketches)
    while len(sketches) > 1:
        for left, right in zip(sketches[::2], sketches[1::2], strict=True):
            left.merge(right)
        sketches = sketches[::2]
    merged = sketches[0]
    assert merged.count == values.size
    assert_within_bound(merged, values.ravel())
    assert merged.num_tuples <= sizes
    more = np.random.default_rng(3).normal(size=values.size)
    merged.update(more)
    assert merged.num_tuples <= tuples_allowed(merged)
    assert_within_bound(merged, np.append(values, more))


def test_equal_runs_are_equal_bit_for_bit():
    values = stream("zero_inflated", 20_000)
    one, other = fed(values, batch=777).state_dict(), fed(values, batch=777).state_dict()
    assert all(np.array_equal(one[key], other[key]) for key in one)


def test_state_goes_on_bit_for_bit():
    batches = np.random.default_rng(4).normal(size=(20, 1000))
    straight, first, second = GKSketch(0.01), GKSketch(0.01), GKSketch(0.01)
    for batch in batches:
        straight.update(batch)
    for batch in batches[:9]:
        first.update(batch)
    second.load_state_dict(first.state_dict())
    for batch in batches[9:]:
        second.quantile(LEVELS)  # looking changes nothing
        second.update(batch)
    want, got = straight.state_dict(), second.state_dict()
    assert want.keys() == got.keys()
    assert all(np.array_equal(want[key], got[key]) for key in want)


def test_a_saved_state_shares_nothing_with_the_sketch():
    sketch = fed(stream("random", 1000))
    state = sketch.state_dict()
    other = GKSketch(0.01)
    other.load_state_dict(state)
    median = sketch.quantile(0.5)
    for name in ("values", "low", "high"):
        state[name][:] = 7
    assert sketch.quantile(0.5) == other.quantile(0.5) == median


def test_a_state_of_the_whole_range_of_floats_loads():
    most = np.finfo(np.float64).max
    sketch, loaded = fed(np.linspace(-1, 1, 1000) * most), GKSketch(0.01)
    with np.errstate(all="raise"):
        loaded.load_state_dict(sketch.state_dict())
        assert loaded.quantile([0.0, 0.5, 1.0]) == pytest.approx([-most, 0, most], abs=0.02 * most)


def test_an_empty_state_loads():
    sketch = fed(stream("random", 100))
    sketch.load_state_dict(GKSketch(0.01).state_dict())
    assert sketch.count == sketch.num_tuples == 0
    assert np.isnan(sketch.quantile(0.5))


@pytest.mark.parametrize(
    "change",
    [
        lambda state: {"values": state["values"][:-1]},
        lambda state: {"values": state["values"][:-1], "low": state["low"][:-1], "high": state["high"][:-1]},
        lambda state: {"values": state["values"][::-1]},
        lambda state: {"values": np.where(np.arange(state["values"].size) == 3, NAN, state["values"])},
        lambda state: {"low": np.zeros_like(state["low"])},
        lambda state: {"low": state["low"] + 1},
        lambda state: {"high": state["high"][::-1]},
        lambda state: {"low": state["high"], "high": state["low"]},
        lambda state: {
            "values": np.delete(state["values"], 5),
            "low": np.delete(state["low"], 5),
            "high": np.delete(state["high"], 5),
        },
        lambda state: {"values": np.empty(0), "low": np.empty(0), "high": np.empty(0)},
        lambda state: {"values": state["values"][None]},
        lambda state: {"count": state["count"] + 1},
        lambda state: {"count": 0},
    ],
)
def test_a_corrupt_state_is_an_error(change):
    sketch = fed(stream("random", 5000), batch=100)
    state = sketch.state_dict()
    with pytest.raises(ValueError, match="not a summary of"):
        GKSketch(0.01).load_state_dict({**state, **change(state)})


def test_nan_inf_and_empty_batches_are_skipped():
    clean, dirty = GKSketch(0.1), GKSketch(0.1)
    clean.update([3.0, 1.0, 2.0])
    for batch in ([], [NAN, 3.0, np.inf], [NAN], [1.0, -np.inf, 2.0]):
        dirty.update(batch)
    assert (dirty.count, dirty.skipped, dirty.minimum, dirty.maximum) == (3, 4, 1.0, 3.0)
    assert dirty.quantile([0.0, 0.5, 1.0]).tolist() == clean.quantile([0.0, 0.5, 1.0]).tolist() == [1.0, 2.0, 3.0]
    assert dirty.cdf([-np.inf, 0.0, 2.0, np.inf]).tolist() == [0.0, 0.0, pytest.approx(2 / 3), 1.0]
    assert np.isnan(dirty.cdf([NAN])).all()
    assert np.isnan(GKSketch().cdf([[1.0]])).all()


def test_answers_have_the_shape_of_the_question():
    sketch = fed(stream("random", 1000))
    for shape in ((), (0,), (1,), (2, 3)):
        assert np.shape(sketch.quantile(np.full(shape, 0.5))) == shape
        assert np.shape(sketch.cdf(np.full(shape, 0.5))) == shape


def test_the_batch_given_is_left_alone():
    values = stream("random", 1000)
    kept = values.copy()
    sketch = fed(values)
    median = sketch.quantile(0.5)
    assert np.array_equal(values, kept)
    values[:] = 0
    assert sketch.quantile(0.5) == median


@pytest.mark.parametrize("epsilon", [0, -0.1, 0.5, 1, NAN, True, "0.1", None])
def test_bad_epsilon_is_an_error(epsilon):
    with pytest.raises(ValueError, match=r"epsilon must lie between 0 and 0\.5, got "):
        GKSketch(epsilon)


def test_merging_or_loading_other_settings_or_kinds_is_an_error():
    sketch = GKSketch(0.01)
    with pytest.raises(ValueError, match=r"other must have epsilon=0\.01 to merge, got 0\.02"):
        sketch.merge(GKSketch(0.02))
    with pytest.raises(TypeError, match="GKSketch"):
        sketch.merge(OrderStatistics())
    with pytest.raises(ValueError, match=r"state must have epsilon=0\.\d+, got 0\.\d+"):
        sketch.load_state_dict(GKSketch(0.02).state_dict())
    with pytest.raises(ValueError, match="missing"):
        sketch.load_state_dict(OrderStatistics().state_dict())
