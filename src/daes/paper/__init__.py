"""Each table and figure of the paper as an experiment: run, described and drawn by `daes paper NAME`."""

from importlib import import_module

from daes.paper.experiment import Execution, Experiment, ExperimentSettings, OutOfTimeError
from daes.paper.result import ExperimentResult

_MODULES = (
    "estimation",
    "jump_bias",
    "reservoir_size",
    "order_statistics_bias",
    "value_space_limit",
    "stationarity",
    "overall",
    "ablations",
    "context",
    "cost",
    "ab_test",
    "ladder",
)

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for module in _MODULES
    for experiment in import_module(f"daes.paper.{module}").EXPERIMENTS
}
"""Every experiment by name, in the order in which they are run and reported."""

__all__ = ["EXPERIMENTS", "Execution", "Experiment", "ExperimentResult", "ExperimentSettings", "OutOfTimeError"]
