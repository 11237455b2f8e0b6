from collections import OrderedDict

import pytest
import torch

pytestmark = pytest.mark.engines
pytest.importorskip("fuxictr", reason="fuxictr is not installed")


@pytest.fixture
def features(tmp_path):
    from fuxictr.features import FeatureMap

    made = FeatureMap("clicks", str(tmp_path))
    numeric = {"type": "numeric", "source": ""}
    made.features = OrderedDict(price=numeric, age=numeric, city={"type": "categorical", "vocab_size": 4, "source": ""})
    return made


def test_numeric_features_are_replaced(features):
    from fuxictr.pytorch.layers import FeatureEmbedding

    from daes.adapters.fuxictr import NumericFeature, use_method

    layer = FeatureEmbedding(features, 8)
    city = layer.embedding_layer.embedding_layers["city"]
    assert use_method(layer) == ["price", "age"]
    own = layer.embedding_layer.embedding_layers
    assert isinstance(own["price"], NumericFeature)
    assert own["city"] is city
    inputs = {"price": torch.randn(6), "age": torch.randn(6), "city": torch.randint(0, 4, (6,))}
    vectors = layer(inputs)
    assert vectors.shape == (6, 3, 8)
    torch.testing.assert_close(vectors[:, 0], own["price"].eval()(inputs["price"].view(-1, 1)))
    assert own["price"].method.distributions.count.item() == 6


def test_the_linear_part_stays(features):
    from fuxictr.pytorch.layers import FeatureEmbedding
    from torch import nn

    from daes.adapters.fuxictr import use_method

    model = nn.ModuleDict(
        {"deep": FeatureEmbedding(features, 8), "wide": FeatureEmbedding(features, 1, use_pretrain=False)}
    )
    use_method(model, "fe")
    assert isinstance(model["wide"].embedding_layer.embedding_layers["price"], nn.Linear)


def test_a_model_without_numbers():
    from daes.adapters.fuxictr import use_method

    with pytest.raises(ValueError, match="model must have a FeatureEmbedding with a numeric feature, got none"):
        use_method(torch.nn.Linear(1, 1))
