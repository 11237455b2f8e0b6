"""Evidence by compiled loops is what the plain version gives."""

from copy import deepcopy

import pytest
import torch

from daes import native
from daes.evidence import Evidence, EvidenceInputs

pytestmark = pytest.mark.skipif(native._library is None, reason="the loops are not compiled: python -m daes.native")


def run_evidence(options, batches):
    counted = EvidenceInputs(Evidence(**options), num_numerical=4, offsets=[0, 10], table_rows=30)
    found = []
    for numbers, rows, labels in batches:
        found.append(counted(numbers, rows))
        counted.update(numbers, rows, labels)
    return torch.cat(found), dict(counted.state_dict())


@pytest.mark.parametrize("options", [{}, {"half_life": 50.0}, {"numbers": False}, {"categories": False}, {"bins": 16}])
def test_evidence(options, plainly, make_values):
    batches = []
    for seed, count in enumerate((1, 0, 50, 3, 200, 128)):
        generator = torch.Generator().manual_seed(seed)
        rows = torch.stack([torch.randint(10, (count,), generator=generator), torch.randint(10, 30, (count,))], 1)
        batches.append((make_values(count, 4, seed), rows, (torch.rand(count, generator=generator) < 0.3).float()))
    inputs, state = run_evidence(options, batches)
    with plainly():
        expected, plain = run_evidence(options, batches)
    torch.testing.assert_close(inputs, expected, rtol=1e-6, atol=1e-6)
    for name in plain:
        torch.testing.assert_close(state[name], plain[name], rtol=1e-12, atol=0, equal_nan=True, msg=name)


@pytest.mark.parametrize("strength", [0.01, 5.0, 20.0, 1e6])
def test_cells_never_seen_say_exactly_nothing(strength):
    """Adagrad would make a whole step of a rounding error."""
    counted = EvidenceInputs(Evidence(strength=strength), num_numerical=1, offsets=[0], table_rows=3)
    numbers, rows, unseen = torch.ones(1, 1), torch.ones(1, 1, dtype=torch.int64), torch.full((1, 1), 2)
    for label in (0.0, 1.0, 0.0, 0.0, 0.0, 1.0) * 5:
        assert counted(torch.full((1, 1), torch.nan), unseen).tolist() == [[0.0, 0.0, -1.0]]
        counted.update(numbers, rows, torch.tensor([label]))


@pytest.mark.parametrize(("numbers", "rows"), [((3, 1), (2, 1)), ((2, 2), (2, 1)), ((2, 1), (2, 2)), ((2, 1), (3, 1))])
def test_evidence_of_other_shapes_is_refused(numbers, rows):
    counted = EvidenceInputs(Evidence(), 1, [0], 7)
    before = deepcopy(counted.state_dict())
    with pytest.raises(ValueError, match="must have shape"):
        counted.update(torch.zeros(numbers), torch.zeros(rows, dtype=torch.int64), torch.ones(2))
    for name, one in counted.state_dict().items():
        assert torch.equal(one, before[name]), name
