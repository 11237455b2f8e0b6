"""Grids of trials, their log, comparison and statistical tests: what `daes compare` and `daes.paper` are built on."""

from daes.experiments.compare import TrialProgress, compare, run_trials
from daes.experiments.comparison import Comparison
from daes.experiments.significance import average_rank, t_test
from daes.experiments.trial import Trial, TrialResult, run_trial

__all__ = [
    "Comparison",
    "Trial",
    "TrialProgress",
    "TrialResult",
    "average_rank",
    "compare",
    "run_trial",
    "run_trials",
    "t_test",
]
