"""P(click | x) by counting past clicks, for values, ids and combinations of them, as parts of a model."""

from daes.evidence.combinations import Combinations
from daes.evidence.inputs import EvidenceInputs
from daes.evidence.options import Evidence
from daes.evidence.recent import RecentErrors

__all__ = ["Combinations", "Evidence", "EvidenceInputs", "RecentErrors"]
