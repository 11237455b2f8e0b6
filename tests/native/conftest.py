from contextlib import contextmanager

import numpy as np
import pytest
import torch

from daes import native


@pytest.fixture
def plainly():
    """A context within which nothing is compiled."""

    @contextmanager
    def off():
        kept, native._library = native._library, None
        try:
            yield
        finally:
            native._library = kept

    return off


@pytest.fixture(scope="session")
def make_values():
    """A function that makes skewed columns with ties, missing values and infinities; the last one is always missing."""

    def make(rows, q, seed=0):
        rng = np.random.default_rng(seed)
        values = np.exp(rng.normal(size=(rows, q)) * 2).astype(np.float32)
        values[rng.random(values.shape) < 0.3] = 1.5
        values[rng.random(values.shape) < 0.2] = np.nan
        values[rng.random(values.shape) < 0.05] = np.inf
        values[rng.random(values.shape) < 0.05] = -np.inf
        values[:, -1] = np.nan
        return torch.from_numpy(values)

    return make
