"""Several processes that train one model, as `torch.nn.parallel.DistributedDataParallel` does."""

import torch.distributed as dist


class ProcessesDisagreeError(RuntimeError):
    """Statistics of the data would differ between the processes that train one model."""


def num_processes() -> int:
    """How many processes `torch.distributed` has in its default group; 1 without one.

    >>> num_processes()
    1
    """
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def refuse_several_processes(what: str, instead: str) -> None:
    """An error where there are several processes: what each learns from its own rows alone would not agree."""
    if num_processes() > 1:
        raise ProcessesDisagreeError(
            f"{what} of {num_processes()} processes would not agree, since each follows its own rows: {instead}"
        )
