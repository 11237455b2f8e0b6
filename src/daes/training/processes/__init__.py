"""Several processes that train one model, as `torchrun` starts them.

Every process has all rows and learns from its part of every batch; Parquet files are read by all together
(`DividedReading`). Gradients are averaged over all rows of a step (`GradientExchange`). From time to time the processes
exchange their scores and update distributions, vocabularies, evidence and metrics with all rows, in the order of the
stream: these are then the same in every process, and equal those of one process that has read all rows
(`ProcessTrainer`). On one machine the processes share the memory of statistics and tables (`SharedMemory`), and each
does a part of the work.
"""

from daes.training.processes.group import LostProcessError, OtherProcessError, Processes, process_group
from daes.training.processes.reading import read_together
from daes.training.processes.trainer import ProcessTrainer

__all__ = [
    "LostProcessError",
    "OtherProcessError",
    "ProcessTrainer",
    "Processes",
    "process_group",
    "read_together",
]
