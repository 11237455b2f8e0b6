import numpy as np
import pytest
import torch

from daes.memory import out_of_memory


def too_much(make):
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        make()
    return out_of_memory(caught.value)


def test_errors_of_numpy_and_torch():
    advice = "; smaller tables, layers, windows or batches need less"
    assert too_much(lambda: np.empty(10**15)) == f"not enough memory: 7.11 PiB were asked for at once{advice}"
    assert too_much(lambda: torch.empty(2**50)) == f"not enough memory: 4,194,304.0 GiB were asked for at once{advice}"
    assert too_much(lambda: torch.empty(2**31, 2**31, 2**31)) == f"not enough memory{advice}"


def test_other_errors_are_none_of_memory():
    assert out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) is None
    assert out_of_memory(ValueError("can't allocate memory")) is None
