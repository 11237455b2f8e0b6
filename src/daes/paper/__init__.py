"""Each table and figure of the paper as an experiment: run, told and drawn by `daes paper NAME`."""

from daes.paper.data import DataSet
from daes.paper.estimation import EXPERIMENT as ESTIMATION
from daes.paper.experiment import Experiment, Means, OutOfTimeError, Settings
from daes.paper.jump_bias import EXPERIMENT as JUMP_BIAS
from daes.paper.result import Result

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in (ESTIMATION, JUMP_BIAS)}
"""Every experiment by name, in the order in which they are run and reported."""

__all__ = ["EXPERIMENTS", "DataSet", "Experiment", "Means", "OutOfTimeError", "Result", "Settings"]
