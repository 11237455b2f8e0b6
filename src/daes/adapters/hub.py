"""A model that can be pushed to the Hugging Face Hub and loaded from it."""

from pathlib import Path
from typing import Any, Self

from daes.extras import require
from daes.model import CTRModel
from daes.storage.saved_model import CONFIG, WEIGHTS
from daes.stream.schema import Schema

require("huggingface_hub")
from huggingface_hub import PyTorchModelHubMixin, snapshot_download  # noqa: E402


class HubModel(  # type: ignore[call-arg]
    PyTorchModelHubMixin,  # type: ignore[misc]
    CTRModel,
    library_name="daes",
    tags=["click-through-rate", "tabular-classification"],
):
    """`CTRModel` with `save_pretrained`, `push_to_hub` and `from_pretrained` of Hugging Face's `PyTorchModelHubMixin`.

    A folder or repository holds the same `config.json` and `model.safetensors` as that of a `CTRModel`, and a model
    card: `CTRModel.from_pretrained` reads it, and `HubModel.from_pretrained` reads what a `CTRModel` has saved, such as
    `model/` of a run. Reading it runs no code.
    """

    def _save_pretrained(self, save_directory: Path) -> None:
        CTRModel.save_pretrained(self, save_directory)

    @classmethod
    def _from_pretrained(
        cls, *, model_id: str, map_location: str = "cpu", schema: Schema | None = None, **options: Any
    ) -> Self:
        folder = Path(model_id)
        if not folder.is_dir():
            names = "revision", "cache_dir", "force_download", "local_files_only", "token"
            given = {name: options[name] for name in names}
            folder = Path(snapshot_download(model_id, **given, allow_patterns=[CONFIG, WEIGHTS]))
        read = CTRModel.from_pretrained.__func__  # type: ignore[attr-defined]  # the mixin's hides it
        model: Self = read(cls, folder, schema=schema)
        return model.to(map_location)
