"""The processes of a training run as workers of Ray Train, which replaces lost ones."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from daes.engines.base import EngineError
from daes.engines.ray import LEAST_CPUS, quiet_ray, start_ray
from daes.extras import require

T = TypeVar("T")

MAX_FAILURES = 3
"""How often lost workers are replaced before the run fails."""


class WorkerLog(Generic[T]):
    """Starts and results of workers, as an actor of Ray that outlives them."""

    def __init__(self) -> None:
        self.begun: dict[int, int] = {}
        self.results: dict[int, T] = {}

    def begin(self, rank: int) -> int:
        """How often a worker of this rank has been started before."""
        self.begun[rank] = self.begun.get(rank, 0) + 1
        return self.begun[rank] - 1

    def finish(self, rank: int, result: T) -> None:
        self.results[rank] = result

    def read(self) -> tuple[list[T], int]:
        """The results by rank, and how often workers were replaced."""
        return [self.results[rank] for rank in sorted(self.results)], max(self.begun.values(), default=1) - 1


@quiet_ray()
def run_workers(
    work: Callable[[int], T], workers: int, *, folder: str | Path, use_gpu: bool = False
) -> tuple[list[T], int]:
    """Call `work(attempt)` in processes with a group of `torch.distributed`; returns the results by rank.

    If a worker is lost (its process is killed, its machine is gone) or raises an error, all workers are started again
    with the next `attempt`, which is 0 at first, up to `MAX_FAILURES` times. `work` must find out itself how far the
    previous attempt came.

    Args:
        work: the function to call. It and its result are pickled.
        workers: number of processes, each with a CPU and, with `use_gpu`, a GPU.
        folder: where Ray Train may write while this runs; visible to all machines.

    Returns:
        The results, and how often the workers were replaced.
    """
    ray = start_ray(num_cpus=max(LEAST_CPUS, workers + 1))
    scratch = Path(tempfile.mkdtemp(prefix=".daes-ray-", dir=Path(folder).absolute()))
    train, torch_train = require("ray.train"), require("ray.train.torch")
    log = ray.remote(WorkerLog).options(num_cpus=0).remote()
    trainer = torch_train.TorchTrainer(
        _work,
        train_loop_config={"work": work, "log": log},
        scaling_config=train.ScalingConfig(num_workers=workers, use_gpu=use_gpu),
        torch_config=torch_train.TorchConfig(backend="cpu:gloo,cuda:nccl" if use_gpu else "gloo"),
        run_config=train.RunConfig(
            name="run", storage_path=str(scratch), failure_config=train.FailureConfig(max_failures=MAX_FAILURES)
        ),
    )
    try:
        trainer.fit()
    except Exception as error:  # Ray's error classes differ between versions
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise EngineError(f"Ray's workers have failed more than {MAX_FAILURES} times: {reason[-1]}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    results, replaced = ray.get(log.read.remote())
    return results, replaced


def _work(config: dict[str, Any]) -> None:
    """Called by Ray Train in each worker."""
    ray, train = require("ray"), require("ray.train")
    rank = train.get_context().get_world_rank()
    attempt = ray.get(config["log"].begin.remote(rank))
    torch.set_num_threads(1)
    ray.get(config["log"].finish.remote(rank, config["work"](attempt)))
