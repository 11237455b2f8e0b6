"""What must be the same when a run is resumed, and in all processes of a run."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from daes import native
from daes.embedding import DividedEmbedding
from daes.model import CTRModel
from daes.storage.run_folder import RunFolder, strict
from daes.stream.dataset import Dataset
from daes.training.environment import environment
from daes.training.processes.checksum import model_checksum
from daes.training.processes.group import Processes, first_difference

PARTS = ("data", "schema", "model", "training", "run", "options")
_CHANGEABLE = {
    *("data.limit", "data.rows", "run.keep", "run.prefetch", "run.world_size", "training.cuda_graphs"),
    *("training.checkpoint_every", "training.checkpoint_minutes", "training.sync_every"),
}
"""What may change when a run is resumed, since it does not change the result."""
_PLACE = {"data.what", "data.name"}


def check_same_start(processes: Processes, description: Mapping[str, Any], data: Dataset, model: CTRModel) -> None:
    """Raise unless all processes have the same options, files of the same sizes, and the same initial model.

    The files may have other paths, as on machines that mount them in other places.
    """
    if processes.count == 1:
        return
    read = {name: value for name, value in description["data"].items() if name != "what"}
    sizes = [size for _, size, _ in data.stamps() or []]
    processes.compare(
        {
            **description,
            "data": {**read, "bytes of the files": sizes},
            "torch": torch.__version__,  # which changes how numbers are rounded, and so do the loops
            "compiled loops": native.serves(),
            "divided tables": isinstance(model.categorical, DividedEmbedding),
            "initial model": model_checksum(model),
        }
    )


def check_same_run(
    written: RunFolder,
    description: Mapping[str, Any],
    parts: Sequence[str] = ("data", "schema", "model", "training", "run"),
    *,
    moved: bool = False,
) -> None:
    """Raise if a run is resumed with another configuration, except for options that do not change the result.

    Args:
        written: the run.
        description: the configuration that it is resumed with.
        parts: what to compare.
        moved: whether the data may be at another place, since the rows themselves are compared.
    """
    stored, given = written.read_config(*PARTS), strict(description)
    ignore = _CHANGEABLE | (_PLACE if moved else set())
    for part in parts:
        if difference := first_difference(stored[part], given[part], part, ignore=ignore):
            name, old, new = difference
            raise ValueError(
                f"{written.path} was started with {name}={old!r} and cannot be resumed with {new!r}: "
                "start a new run, or keep the old value"
            )


def other_versions(written: RunFolder) -> str:
    """A phrase about versions that have changed since the run was started; empty if none has."""
    stored, now = written.read_config().get("environment", {}), environment()
    versions = {
        "daes": (stored.get("daes"), now["daes"]),
        "torch": (stored.get("packages", {}).get("torch"), now["packages"]["torch"]),
    }
    changed = {name: pair for name, pair in versions.items() if pair[0] not in (None, pair[1])}
    before, after = (" and ".join(f"{name} {pair[place]}" for name, pair in changed.items()) for place in (0, 1))
    return f"was started with {before} and is resumed with {after}" if changed else ""
