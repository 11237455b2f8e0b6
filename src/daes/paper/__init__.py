"""Each table and figure of the paper as an experiment: run, told and drawn by `daes paper NAME`."""

from importlib import import_module

from daes.paper.experiment import Experiment, Means, OutOfTimeError, Settings
from daes.paper.result import Result

_MODULES = (
    "estimation",
    "jump_bias",
    "reservoir_size",
    "order_statistics_bias",
    "value_space_limit",
    "stationarity",
    "overall",
    "space",
    "beta",
    "meta_count",
    "feature_count",
    "context",
    "cost",
    "ab_test",
)

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (import_module(f"daes.paper.{module}").EXPERIMENT for module in _MODULES)
}
"""Every experiment by name, in the order in which they are run and reported."""

__all__ = ["EXPERIMENTS", "Experiment", "Means", "OutOfTimeError", "Result", "Settings"]
