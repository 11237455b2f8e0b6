import os
from collections.abc import Callable

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before the first import of Triton: kernels run on the CPU

from daes.embedding import kernels
from daes.model import CTRModel
from daes.stream.batch import Batch
from daes.stream.schema import Schema


@pytest.fixture
def schema() -> Schema:
    return Schema("click", numerical=("price", "age"), categorical=("city", "device"))


@pytest.fixture
def make_rows() -> Callable[..., Batch]:
    """Rows whose clicks depend on both numbers and on a category; some values are missing."""

    def make(count: int, seed: int = 0) -> Batch:
        random = np.random.default_rng(seed)
        numerical = random.lognormal(size=(count, 2)).astype(np.float32)
        categorical = np.stack([random.integers(1, 30, count), random.integers(1, 4, count)], axis=1)
        logit = np.log(numerical[:, 0]) - 0.5 * np.log(numerical[:, 1]) + 0.4 * (categorical[:, 1] - 2) - 0.5
        label = (random.random(count) < 1 / (1 + np.exp(-logit))).astype(np.float32)
        numerical[random.random((count, 2)) < 0.05] = np.nan
        categorical[random.random((count, 2)) < 0.05] = 0
        return Batch(numerical, categorical, label)

    return make


@pytest.fixture
def make_model(schema: Schema) -> Callable[..., CTRModel]:
    """A small model; one seed, one start."""

    def make(method: str = "daes", backbone: str = "fnn", seed: int = 0, **arguments: object) -> CTRModel:
        torch.manual_seed(seed)
        options = {"hidden": (8,)} if backbone not in ("lr", "fm") else {}
        defaults = {"dim": 4, "sizes": 20, "backbone_options": options}
        return CTRModel(schema, method, backbone, **{**defaults, **arguments})

    return make


@pytest.fixture
def kernel_device(monkeypatch) -> torch.device:
    """Where kernels run: a CUDA device or, without one, the CPU by Triton's interpreter."""
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        return torch.device("cuda")
    monkeypatch.setattr(kernels, "DEVICES", {"cpu"})
    return torch.device("cpu")
