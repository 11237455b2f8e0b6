"""The run that another one starts from: yesterday's model, optimisers and statistics, for the rows of today."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
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
        checkpoint: the checkpoint, if it is read already.
        map_above: of `CheckpointStore`, to read it with.
    """

    schema: Schema
    arguments: Mapping[str, Any]
    description: Mapping[str, Any]
    checkpoint: Checkpoint | None = None
    map_above: int | None = None

    @classmethod
    def open(cls, folder: str | Path, optimizer: str | None = None, map_above: int | None = None) -> Self:
        """A run at its newest checkpoint; its state is of use to the optimiser that it was trained with."""
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
        return cls(read_schema(config), config["model"], description, checkpoint)

    @classmethod
    def of(cls, config: Mapping[str, Any], map_above: int | None = None) -> Self | None:
        """The parent that the configuration of a run names; None if it has none."""
        found = config.get("parent")
        return None if found is None else cls(read_schema(config), config["model"], found, map_above=map_above)

    def make_model(self, schema: Schema, tables: type[CategoricalEmbedding] = CategoricalEmbedding) -> CTRModel:
        """A new model that the parent's state fits; other columns are an error."""
        refuse_other_schema(schema, self.schema)
        return CTRModel(schema, **self.arguments, categorical=tables)

    def load_into(self, trainer: StreamTrainer) -> None:
        """Let a trainer of such a model start from the parent's state."""
        checkpoint = self.checkpoint
        if checkpoint is None:
            folder = RunFolder(self.description["run"]).checkpoints
            checkpoint = CheckpointStore(folder, map_above=self.map_above).load(self.description["step"])
        assert checkpoint is not None
        with checkpoint.in_use():
            trainer.start_from(checkpoint.state)


def read_schema(config: Mapping[str, Any]) -> Schema:
    """The schema in the configuration of a run."""
    return Schema.from_json(json.dumps(config["schema"]))
