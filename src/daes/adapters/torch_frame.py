"""An encoder of numerical columns for pytorch-frame."""

from typing import Any

from torch import Tensor

from daes.adapters.building import build_method
from daes.extras import require

require("torch_frame")
from torch_frame import NAStrategy, stype  # noqa: E402
from torch_frame.data.stats import StatType  # noqa: E402
from torch_frame.nn import StypeEncoder  # noqa: E402


class StreamingEncoder(StypeEncoder):  # type: ignore[misc]
    """Any method of daes as a `StypeEncoder`: `{stype.numerical: StreamingEncoder()}`.

    The statistics come from the stream, not from `stats_list`. With `na_strategy=None` a missing value has a learned
    vector; pytorch-frame's own encoders give it zeros. An offline method must be fitted before use:
    `encoder.method.fit(values)`.

    Args:
        out_channels, stats_list, stype, post_module, na_strategy: as for `StypeEncoder`; pytorch-frame sets the first
            three.
        method_name: a name in `daes.embedding.METHODS`.
        options: further arguments of the method.
    """

    supported_stypes = {stype.numerical}  # noqa: RUF012 (as in pytorch-frame)

    def __init__(
        self,
        out_channels: int | None = None,
        stats_list: list[dict[StatType, Any]] | None = None,
        stype: stype | None = None,
        post_module: Any = None,
        na_strategy: NAStrategy | None = None,
        *,
        method_name: str = "daes",
        **options: Any,
    ) -> None:
        self.method_name = method_name
        self.options = options
        super().__init__(out_channels, stats_list, stype, post_module, na_strategy)

    def init_modules(self) -> None:
        """Called by pytorch-frame once the columns and the channels are known."""
        super().init_modules()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset to new parameters and empty statistics."""
        super().reset_parameters()
        self.method = build_method(self.method_name, len(self.stats_list), self.out_channels, **self.options)

    def encode_forward(self, feat: Tensor, col_names: list[str] | None = None) -> Tensor:
        """(B, columns) → (B, columns, out_channels)."""
        vectors: Tensor = self.method(feat)
        return vectors
