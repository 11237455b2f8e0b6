import subprocess
import sys

import pytest
import torch

from daes.model import CTRModel
from daes.stream.schema import Schema
from daes.training.config import TrainConfig
from daes.training.optimizer import Adagrad, coalesced, make_optimizers

RATE = 0.03


def parameters(*shapes):
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_dense_gradients_are_applied_as_by_torch(decay, together):
    mine, theirs = (parameters((4, 3), (3,), (0,), (5,)) for _ in range(2))
    ours, oracle = Adagrad(mine, RATE, decay), torch.optim.Adagrad(theirs, RATE, weight_decay=decay, foreach=False)
    for step in range(20):
        for one, other in zip(mine[:3], theirs[:3], strict=True):  # the last one never has a gradient
            one.grad = torch.randn_like(one) * step
            other.grad = one.grad.clone()
        if together:  # as on an accelerator
            ours._step_dense(*([tensor.data for tensor in part] for part in (mine[:3],)), *_rest(ours, mine))
        else:
            ours.step()
        oracle.step()
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other)


def _rest(optimizer, mine):
    return [one.grad for one in mine[:3]], optimizer.sums[:3]


def test_sparse_gradients_are_applied_to_the_rows_of_a_batch():
    (dense,), (sparse,) = parameters((20, 3)), parameters((20, 3))
    start = dense.detach().clone()
    plain, table = torch.optim.Adagrad([dense], lr=RATE), Adagrad([sparse], RATE)
    for _ in range(30):
        rows = torch.randint(20, (8,))  # some rows several times
        for parameter, as_sparse in ((dense, False), (sparse, True)):
            parameter.grad = None
            torch.nn.functional.embedding(rows, parameter, sparse=as_sparse).square().sum().backward()
        plain.step()
        table.step()
    torch.testing.assert_close(sparse, dense)
    assert not torch.equal(sparse, start)


def test_a_loaded_optimiser_goes_on_with_the_same_bits():
    (mine,), (theirs,) = parameters((4, 3)), parameters((4, 3))
    one, other = Adagrad([mine], RATE), Adagrad([theirs], 1.0)
    mine.grad = theirs.grad = torch.ones(4, 3)
    one.step()
    other.load_state_dict(one.state_dict())
    theirs.data.copy_(mine.data)
    one.step()
    other.step()
    assert torch.equal(mine, theirs)
    with pytest.raises(ValueError, match=r"state must be of parameters of the shapes \[\(2,\)\], got \[\(4, 3\)\]"):
        Adagrad(parameters((2,)), RATE).load_state_dict(one.state_dict())


def test_training_does_not_load_torchs_compiler():
    code = """
import sys
from daes.simulation import AdStream
from daes.model import CTRModel
from daes.training import StreamTrainer, TrainConfig
stream = AdStream(num_rows=300, seed=0)
StreamTrainer(CTRModel(stream.schema, sizes=20), TrainConfig(batch_size=100)).run(stream)
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_sums_of_tables_start_where_a_row_of_a_batch_would_put_them():
    schema = Schema("click", numerical=("price",), categorical=("city",))
    for sparse in (False, True):
        model = CTRModel(schema, "efd", "fnn", sizes=10, categorical_options={"sparse": sparse})
        optimizers = make_optimizers(model, TrainConfig(batch_size=50, table_start=0.3))
        (adagrad,) = optimizers.parts
        by_parameter = {id(one): total for one, total in zip(adagrad.parameters, adagrad.sums, strict=True)}
        sums = {name: by_parameter[id(parameter)] for name, parameter in model.named_parameters()}
        for table in sums.pop("categorical.weight"), sums.pop("numerical.table"):
            torch.testing.assert_close(table, torch.full_like(table, 3.6e-5))
        assert all(not value.any() for value in sums.values())


@pytest.mark.parametrize("rows", [[], [2], [0, 1, 3], [3, 1, 0], [1, 1, 2]])
def test_rows_of_a_gradient_are_added_up(rows):
    values = torch.arange(2.0 * len(rows)).reshape(-1, 2)
    places = torch.tensor([rows], dtype=torch.int64)
    gradient = torch.sparse_coo_tensor(places, values, (4, 2), check_invariants=True)
    expected = gradient.coalesce()
    found = coalesced(gradient)
    assert found.is_coalesced()
    assert torch.equal(found.indices(), expected.indices())
    assert torch.equal(found.values(), expected.values())
