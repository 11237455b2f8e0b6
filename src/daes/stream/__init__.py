"""Where rows come from: schema, batches, sources, datasets, the ad-stream simulator."""

from daes.stream.batch import Batch, batch_from_table
from daes.stream.datasets import DATASETS
from daes.stream.opening import open
from daes.stream.schema import Schema, infer_schema
from daes.stream.source import Source, Stream, TableSource

__all__ = ["DATASETS", "Batch", "Schema", "Source", "Stream", "TableSource", "batch_from_table", "infer_schema", "open"]
