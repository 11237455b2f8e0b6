"""Several processes that train one model."""

import os
import subprocess
import sys

import pytest
import torch

from daes import native
from daes.embedding import build_embedding
from daes.embedding.processes import num_processes

WORKER = """
import os
import sys
from datetime import timedelta
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from daes.embedding import CategoricalEmbedding, build_embedding
from daes.embedding.processes import ProcessesDisagreeError, num_processes
from daes.model import CTRModel
from daes.stream.schema import Schema
from daes.training.config import TrainConfig
from daes.training.step import TrainingStep

rank = int(sys.argv[1])
store = dist.FileStore(sys.argv[2], 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=60))
assert num_processes() == 2

def refused(call, sentence):
    try:
        call()
    except ProcessesDisagreeError as error:
        assert sentence in str(error), error
    else:
        raise AssertionError(sentence)

torch.manual_seed(0)
schema = Schema("click", ("price", "age"), ("city",))
model = CTRModel(schema, "fe", "fnn", dim=4, sizes=10, evidence=None)
trained = DistributedDataParallel(model)
for step in range(3):
    numbers = torch.randn(8, 2, generator=torch.Generator().manual_seed(10 * step + rank))
    if rank:
        numbers[0, 0] = float("nan")  # the other process has no missing value
    trained(numbers, torch.randint(1, 100, (8, 1))).sum().backward()
    assert model.numerical.missing.grad is not None
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
            parameter.grad = None
both = [torch.empty_like(model.numerical.missing) for _ in range(2)]
dist.all_gather(both, model.numerical.missing.detach())
assert torch.equal(*both)

numbers = torch.randn(8, 2)
reservoirs = build_embedding("daes", 2, 4)
refused(lambda: reservoirs.train()(numbers), "the distributions of 2 processes would differ")
reservoirs.observe_in_forward = False
reservoirs.observe(numbers)  # whoever gives all rows to every process may go on
reservoirs.train()(numbers)
vocabulary = CategoricalEmbedding({"city": 10}, 4, mode="vocabulary")
refused(lambda: vocabulary.train()(torch.ones(8, 1, dtype=torch.int64)), "the vocabularies of 2 processes")
refused(lambda: TrainingStep(model, TrainConfig()), "the models of 2 processes")
dist.destroy_process_group()
os._exit(0)  # threads of DistributedDataParallel at times abort a process that ends as usual
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")
def test_two_processes(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(rank), str(tmp_path / "store")],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for worker in workers:
        _, errors = worker.communicate(timeout=120)
        assert worker.returncode == 0, errors


def test_one_process_is_left_alone(monkeypatch):
    monkeypatch.setattr(native, "_library", None)  # compiled loops write that gradient along with others
    assert num_processes() == 1
    values = torch.randn(8, 2)
    method = build_embedding("daes", 2, 4).train()
    method(values).sum().backward()
    assert method.missing.grad is None  # nothing was missing, and nothing was spent on it
