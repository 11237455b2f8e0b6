import pytest
import torch

from daes.training.environment import find_device


@pytest.mark.parametrize(("available", "device"), [(True, "cuda"), (False, "cpu")])
def test_auto_is_cuda_where_there_is_a_cuda_device(monkeypatch, available, device):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    assert find_device("auto") == device


def test_a_device_must_be_known_and_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert find_device("cuda") == "cuda"
    assert find_device("cuda:1") == "cuda:1"
    with pytest.raises(ValueError, match=r"device must be a CUDA device that exists \(there are 2\), got cuda:2"):
        find_device("cuda:2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match=r"device must be a CUDA device that exists \(torch finds none\), got cuda"):
        find_device("cuda")
    for name in ("abacus", "meta", ""):
        with pytest.raises(ValueError, match=f"device must be auto, cpu, cuda or cuda:N, got {name}"):
            find_device(name)
