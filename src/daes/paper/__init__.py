"""Each table and figure of the paper as an experiment: run, described and drawn by `daes paper NAME`."""

from daes.paper import (
    ab_test,
    ablations,
    context,
    cost,
    estimation,
    jump_bias,
    ladder,
    order_statistics_bias,
    overall,
    reservoir_size,
    stationarity,
    value_space_limit,
)
from daes.paper.experiment import Execution, Experiment, ExperimentSettings, OutOfTimeError
from daes.paper.result import ExperimentResult

_EXPERIMENTS = (
    *(estimation.EXPERIMENT, jump_bias.EXPERIMENT, reservoir_size.EXPERIMENT, order_statistics_bias.EXPERIMENT),
    *(value_space_limit.EXPERIMENT, stationarity.EXPERIMENT, overall.EXPERIMENT),
    *(ablations.SPACE, ablations.BETA_ABLATION, ablations.META_COUNT, ablations.FEATURE_COUNT),
    *(context.EXPERIMENT, cost.EXPERIMENT, ab_test.EXPERIMENT, ladder.EXPERIMENT),
)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _EXPERIMENTS}
"""Every experiment by name, in the order in which they are run and reported."""

__all__ = ["EXPERIMENTS", "Execution", "Experiment", "ExperimentResult", "ExperimentSettings", "OutOfTimeError"]
