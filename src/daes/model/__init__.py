"""`CTRModel`, which is schema + embedding + evidence + backbone, and what it is exported and computed as."""

from daes.model.arguments import DEFAULT_SIZE
from daes.model.ctr_model import CTRModel
from daes.model.device_batch import DeviceBatch

__all__ = ["DEFAULT_SIZE", "CTRModel", "DeviceBatch"]
