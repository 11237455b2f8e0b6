"""A run that another one starts from: yesterday's model, optimisers and statistics for today's rows."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from daes.embedding import CategoricalEmbedding
from daes.model import CTRModel
from daes.storage.checkpoint import Checkpoint, CheckpointError, CheckpointStore
from daes.storage.run_folder import RunFolder
from daes.storage.saved_model import refuse_other_schema
from daes.stream.schema import Schema
from daes.training.trainer import StreamTrainer


@dataclass(frozen=True)
class ParentRun:
    """A run at one of its checkpoints.

    Args:
        schema: the columns it was trained on.
        arguments: those of its `CTRModel`.
        description: `run` (the folder, absolute), `step` (of the checkpoint) and `rows` (read by then).
        load: returns the checkpoint.
    """

    schema: Schema
    arguments: Mapping[str, Any]
    description: Mapping[str, Any]
    load: Callable[[], Checkpoint | None]

    @classmethod
    def open(cls, folder: str | Path, optimizer: str | None = None, map_above: int | None = None) -> Self:
        """A run at its newest checkpoint.

        Args:
            folder: the run.
            optimizer: an error unless the run was trained with it; None for any.
            map_above: as of `CheckpointStore`.
        """
        run = RunFolder(Path(folder).absolute())
        config = run.read_config("schema", "model", "training")
        own = config["training"].get("optimizer")
        if optimizer not in (None, own):
            raise ValueError(f"optimizer must be the parent's, {own}, got {optimizer}")
        checkpoint = CheckpointStore(run.checkpoints, map_above=map_above).load()
        if checkpoint is None:
            raise CheckpointError(f"{run.path} has no checkpoint to start from")
        with checkpoint.in_use():
            description = {"run": str(run.path), "step": checkpoint.step, "rows": checkpoint.state["rows"]}
        return cls(read_schema(config), config["model"], description, lambda: checkpoint)

    @classmethod
    def of(cls, config: Mapping[str, Any], map_above: int | None = None) -> Self | None:
        """The parent named in the configuration of a run; None if it has none."""
        found = config.get("parent")
        if found is None:
            return None
        store = CheckpointStore(RunFolder(found["run"]).checkpoints, map_above=map_above)
        return cls(read_schema(config), config["model"], found, partial(store.load, found["step"]))

    def make_model(self, schema: Schema, tables: type[CategoricalEmbedding] = CategoricalEmbedding) -> CTRModel:
        """A new model that fits the parent's state; other columns are an error."""
        refuse_other_schema(schema, self.schema)
        return CTRModel(schema, **self.arguments, categorical=tables)

    def load_into(self, trainer: StreamTrainer) -> None:
        """Start a trainer of a `make_model` from the parent's state."""
        checkpoint = self.load()
        assert checkpoint is not None
        with checkpoint.in_use():
            trainer.start_from(checkpoint.state)
        checkpoint.state.clear()  # not to be kept in memory during training


def read_schema(config: Mapping[str, Any]) -> Schema:
    """The schema in the configuration of a run."""
    return Schema.from_json(json.dumps(config["schema"]))
