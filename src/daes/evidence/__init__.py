"""What past clicks say of a value, an id, a pair: P(click | x) by counting, as inputs of a model."""

from daes.evidence.inputs import EvidenceInputs
from daes.evidence.options import Evidence
from daes.evidence.recent import RecentErrors

__all__ = ["Evidence", "EvidenceInputs", "RecentErrors"]
