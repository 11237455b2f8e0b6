import re

import numpy as np
import pytest

from daes.backbone.arguments import check_count, check_flag, check_positive_real, check_rate, check_widths


def test_numpy_numbers_become_plain_ones():
    assert type(check_count("layers", np.int64(3))) is int
    assert type(check_rate("dropout", np.float32(0.5))) is float
    assert check_widths("hidden", np.array([4, 2])) == (4, 2)


@pytest.mark.parametrize("value", [True, 2.0, "2", None, [2]])
def test_a_count_must_be_an_integer(value):
    with pytest.raises(TypeError, match=re.escape(f"layers must be an integer, got {value!r}")):
        check_count("layers", value)


def test_a_count_says_its_minimum():
    with pytest.raises(ValueError, match="plain_dim must not be negative, got -1"):
        check_count("plain_dim", -1, minimum=0)
    with pytest.raises(ValueError, match="rows must be at least 2, got 1"):
        check_count("rows", 1, minimum=2)


@pytest.mark.parametrize("values", ["128", b"128", 128, None])
def test_widths_must_be_a_sequence(values):
    with pytest.raises(TypeError, match=re.escape(f"hidden must be a sequence of integers, got {values!r}")):
        check_widths("hidden", values)


@pytest.mark.parametrize("values", [(4, 2.5), (4, "2"), (True,)])
def test_widths_must_be_integers(values):
    with pytest.raises(TypeError, match=re.escape(f"hidden must hold positive integers only, got {values!r}")):
        check_widths("hidden", values)


def test_no_width_at_all_only_where_allowed():
    assert check_widths("hidden", (), empty=True) == ()
    with pytest.raises(ValueError, match="cin must hold at least one width"):
        check_widths("cin", ())


@pytest.mark.parametrize("value", [-0.1, 1.0, 2.0, float("nan"), float("inf")])
def test_a_rate_must_leave_something(value):
    with pytest.raises(ValueError, match=re.escape(f"dropout must lie in [0, 1), got {value!r}")):
        check_rate("dropout", value)


@pytest.mark.parametrize("value", ["0.2", None, True, [0.2]])
def test_a_number_must_be_one(value):
    with pytest.raises(TypeError, match=re.escape(f"floor must be a number, got {value!r}")):
        check_positive_real("floor", value)


@pytest.mark.parametrize("value", [1, 0, None, "yes"])
def test_a_flag_must_be_true_or_false(value):
    with pytest.raises(TypeError, match=re.escape(f"batch_norm must be True or False, got {value!r}")):
        check_flag("batch_norm", value)
