"""Where rows come from: schema, batches, sources, datasets."""

from daes.stream.batch import Batch, batch_from_table
from daes.stream.dataset import Dataset
from daes.stream.datasets import DATASETS
from daes.stream.schema import Schema, infer_schema
from daes.stream.source import BatchSource, Source, TableSource

__all__ = [
    "DATASETS",
    "Batch",
    "BatchSource",
    "Dataset",
    "Schema",
    "Source",
    "TableSource",
    "batch_from_table",
    "infer_schema",
]
