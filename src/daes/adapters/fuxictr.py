"""Methods of daes for the numeric features of FuxiCTR models."""

from typing import Any

from torch import Tensor, nn

from daes.adapters.building import build_method
from daes.extras import require


class NumericFeature(nn.Module):
    """The vectors of one feature, (B, 1) → (B, d), where FuxiCTR has `nn.Linear(1, d)`."""

    def __init__(self, dim: int, method: str, **options: Any) -> None:
        super().__init__()
        self.method = build_method(method, 1, dim, **options)

    def forward(self, values: Tensor) -> Tensor:
        vectors: Tensor = self.method(values)
        return vectors.squeeze(1)


def use_method(model: nn.Module, method: str = "daes", **options: Any) -> list[str]:
    """Embed the numeric features of a FuxiCTR model by a method of daes.

    Every `FeatureEmbedding` in the model has a linear map per numeric feature; these are replaced, except in the
    model's linear part, whose vectors have one dimension. If the model already has an optimiser, the new parameters are
    added to it. An offline method must be fitted before use, feature by feature.

    Args:
        model: any model with `FeatureEmbedding` layers. It is changed.
        method: a name in `daes.embedding.METHODS`.
        options: further arguments of the method.

    Returns:
        The names of the features that the method is used for.
    """
    layers = require("fuxictr.pytorch.layers")
    replaced: dict[str, None] = {}
    new: list[nn.Parameter] = []
    for found in [part for part in model.modules() if isinstance(part, layers.FeatureEmbeddingDict)]:
        for feature, layer in found.embedding_layers.items():
            numeric = found._feature_map.features[feature]["type"] == "numeric"
            if not numeric or not isinstance(layer, nn.Linear) or layer.out_features == 1:
                continue
            made = NumericFeature(layer.out_features, method, **options).to(layer.weight.device)
            found.embedding_layers[feature] = made
            new += made.parameters()
            replaced[feature] = None
    if not replaced:
        raise ValueError("model must have a FeatureEmbedding with a numeric feature, got none")
    if hasattr(model, "optimizer"):
        model.optimizer.add_param_group({"params": new})  # type: ignore[union-attr, operator]
    return list(replaced)
