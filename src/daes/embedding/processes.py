"""Several processes that train one model, as in `torch.nn.parallel.DistributedDataParallel`."""

import torch.distributed as dist


class ProcessesDisagreeError(RuntimeError):
    """Statistics of the data would differ between the processes that train one model."""


def num_processes() -> int:
    """Number of processes in the default group of `torch.distributed`; 1 if there is none."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def refuse_several_processes(what: str, instead: str) -> None:
    """Raise if there are several processes: statistics that each computes from its own rows would differ."""
    if num_processes() > 1:
        raise ProcessesDisagreeError(
            f"{what} of {num_processes()} processes would differ, since each sees only its own rows: {instead}"
        )
