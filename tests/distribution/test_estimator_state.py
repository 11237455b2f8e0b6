"""States as bytes: exact, and refused when damaged."""

import io

import numpy as np
import pytest

from daes.distribution import ESTIMATORS, JumpReservoir
from daes.distribution.estimator_state import state_from_bytes, state_to_bytes


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_survives_the_round_trip(name):
    values = np.random.default_rng(0).lognormal(size=5000)
    first, second = ESTIMATORS[name](), ESTIMATORS[name]()
    first.update(values)
    second.load_state_dict(state_from_bytes(state_to_bytes(first.state_dict())))
    levels = np.linspace(0, 1, 21)
    np.testing.assert_array_equal(second.quantile(levels), first.quantile(levels))
    assert (second.count, second.minimum, second.maximum) == (first.count, first.minimum, first.maximum)


def test_the_same_state_gives_the_same_bytes():
    reservoir = JumpReservoir(10)
    reservoir.update([1.0, 2.0])
    assert state_to_bytes(reservoir.state_dict()) == state_to_bytes(reservoir.state_dict())


def test_every_truncation_is_refused():
    reservoir = JumpReservoir(4)
    reservoir.update([1.0, 2.0, 3.0])
    data = state_to_bytes(reservoir.state_dict())
    for length in range(0, len(data), 7):
        with pytest.raises(ValueError, match="truncated, corrupt or not an estimator's state"):
            state_from_bytes(data[:length])
    with pytest.raises(ValueError, match=f"numbers is truncated, corrupt .* \\({len(data) - 10} bytes\\)"):
        state_from_bytes(data[:-10], name="numbers")


def test_a_flipped_bit_of_the_sample_is_refused():
    reservoir = JumpReservoir(1000)
    reservoir.update(np.arange(1000.0))
    data = bytearray(state_to_bytes(reservoir.state_dict()))
    data[data.index(np.arange(1000.0).tobytes()[:64]) + 40] ^= 1
    with pytest.raises(ValueError, match="corrupt"):
        state_from_bytes(bytes(data))


def test_pickled_objects_are_never_loaded():
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=True, sample=np.array([object()], dtype=object))
    with pytest.raises(ValueError, match="not an estimator's state"):
        state_from_bytes(buffer.getvalue())
