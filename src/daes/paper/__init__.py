"""Each table and figure of the paper as an experiment: run, described and drawn by `daes paper NAME`."""

from daes.paper.ab_test import ABTest
from daes.paper.ablations import Beta, FeatureCount, MetaCount, Space
from daes.paper.context import ContextFields
from daes.paper.cost import Cost
from daes.paper.estimation import Estimation
from daes.paper.experiment import Execution, Experiment, ExperimentSettings, OutOfTimeError
from daes.paper.jump_bias import JumpBias
from daes.paper.ladder import Ladder
from daes.paper.order_statistics_bias import OrderStatisticsBias
from daes.paper.overall import Overall
from daes.paper.reservoir_size import ReservoirSize
from daes.paper.result import ExperimentResult
from daes.paper.stationarity import Stationarity
from daes.paper.value_space_limit import ValueSpaceLimit

_EXPERIMENTS: tuple[Experiment, ...] = (
    *(Estimation(), JumpBias(), ReservoirSize(), OrderStatisticsBias(), ValueSpaceLimit(), Stationarity(), Overall()),
    *(Space(), Beta(), MetaCount(), FeatureCount(), ContextFields(), Cost(), ABTest(), Ladder()),
)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _EXPERIMENTS}
"""Every experiment by name, in the order in which they are run and reported."""

__all__ = ["EXPERIMENTS", "Execution", "Experiment", "ExperimentResult", "ExperimentSettings", "OutOfTimeError"]
