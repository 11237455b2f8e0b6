import numpy as np
import pytest
import torch

from daes.stream.batch import Batch
from daes.training.config import TrainConfig
from daes.training.processes.gradients import GradientExchange
from daes.training.processes.group import Processes
from daes.training.step import TrainingStep

CUTS = (0, 5, 7, 7)
"""Three processes of 5, 2 and no rows."""


class Recording(GradientExchange):
    """Keeps the gradients of the last step, which the optimiser consumes."""

    def __call__(self, *arguments):
        loss = super().__call__(*arguments)
        dense, sparse = self.model.parameter_groups()
        self.found = [parameter.grad.to_dense().clone() for parameter in (*dense, *sparse)]
        return loss


def _step(rank, make_model, rows, options, optimizer):
    options, dtype = dict(options), options.get("dtype", torch.float64)
    model = make_model(**{name: value for name, value in options.items() if name != "dtype"}).to(dtype)
    processes = Processes()
    exchange = Recording(model, processes)
    step = TrainingStep(model, TrainConfig(optimizer=optimizer), exchange)
    own = rows if processes.count == 1 else rows[CUTS[rank] : CUTS[rank + 1]]
    learned = step.learn(own, row=0)
    return learned, step.loss, exchange.found, {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize(
    ("options", "optimizer"),
    [
        ({}, "adagrad"),
        ({"dtype": torch.float32}, "adagrad"),
        ({"l2": 1e-3}, "adam"),
        ({"backbone_options": {"hidden": (8,), "batch_norm": True}}, "adagrad"),
    ],
    ids=["sparse tables", "sparse tables in compiled loops", "dense", "batch norm"],
)
def test_the_mean_over_all_rows(options, optimizer, in_processes, make_model, make_rows):
    rows = make_rows(7)
    rows = Batch(rows.numerical, rows.categorical, rows.label, np.arange(1, 8, dtype=np.float32))
    together = in_processes(3, _step, make_model, rows, options, optimizer)
    learned, loss, gradients, _ = _step(0, make_model, rows, options, optimizer)
    assert learned
    for one in together:
        assert one[0]
        for name, value in together[0][3].items():
            if "num_batches" not in name:
                torch.testing.assert_close(one[3][name], value, rtol=0, atol=0, equal_nan=True)
        if "backbone_options" not in options:  # BatchNorm has the mean of its own rows
            assert one[1] == pytest.approx(loss)
            for mine, alone in zip(one[2], gradients, strict=True):
                torch.testing.assert_close(mine, alone)


def _bad(rank, make_model, rows):
    model = make_model()
    step = TrainingStep(model, TrainConfig(bad_batch="skip"), GradientExchange(model, Processes()))
    before = [parameter.clone() for parameter in model.parameters()]
    own = rows[CUTS[rank] : CUTS[rank + 1]]
    if rank == 1:
        own = Batch(own.numerical, own.categorical, own.label, np.full(len(own), np.inf, np.float32))
    learned = step.learn(own, row=40)
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    return learned, [(bad.row, bad.reason) for bad in step.bad_batches]


def test_a_bad_part_makes_a_bad_batch_in_all_processes(in_processes, make_model, make_rows):
    for learned, bad in in_processes(3, _bad, make_model, make_rows(7)):
        assert not learned
        assert bad == [(40, "the loss is nan")]


def test_a_frozen_parameter_stays(make_model, make_rows):
    model = make_model(l2=0.1)
    model.numerical.missing.requires_grad_(False)
    before = model.numerical.missing.clone()
    TrainingStep(model, TrainConfig(), GradientExchange(model, Processes())).learn(make_rows(7), row=0)
    assert torch.equal(model.numerical.missing, before)
