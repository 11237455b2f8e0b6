import pandas as pd
import pytest
import torch

pytestmark = pytest.mark.engines
pytest.importorskip("torch_frame", reason="pytorch-frame is not installed")


@pytest.fixture
def frame():
    from torch_frame import stype
    from torch_frame.data import Dataset

    rows = pd.DataFrame({"price": [1.0, 2.0, None, 4.0] * 10, "age": [30.0, 40.0, 50.0, 60.0] * 10})
    return Dataset(rows, {"price": stype.numerical, "age": stype.numerical}).materialize()


def encoder_of(frame, **options):
    from torch_frame import stype
    from torch_frame.nn import StypeWiseFeatureEncoder

    from daes.adapters.torch_frame import StreamingEncoder

    made = StreamingEncoder(**options)
    return made, StypeWiseFeatureEncoder(8, frame.col_stats, frame.tensor_frame.col_names_dict, {stype.numerical: made})


def test_it_encodes_observes_and_learns(frame):
    own, whole = encoder_of(frame)
    vectors, names = whole(frame.tensor_frame)
    assert vectors.shape == (40, 2, 8)
    assert sorted(names) == ["age", "price"]
    assert sorted(own.method.distributions.count.tolist()) == [30, 40]
    vectors.square().sum().backward()
    assert all(parameter.grad is not None for parameter in whole.parameters())


def test_a_missing_value_has_a_learned_vector(frame):
    own, whole = encoder_of(frame)
    vectors, names = whole.eval()(frame.tensor_frame)
    price = names.index("price")
    torch.testing.assert_close(vectors[2, price], own.method.missing[price])
    assert vectors[2, price].abs().sum() > 0


def test_missing_values_may_be_filled_by_pytorch_frame(frame):
    from torch_frame import NAStrategy

    _, whole = encoder_of(frame, na_strategy=NAStrategy.MEAN)
    whole(frame.tensor_frame)
    assert whole.encoder_dict["numerical"].method.distributions.count.tolist() == [40, 40]


def test_a_reset_forgets(frame):
    own, whole = encoder_of(frame, method_name="daes-gate", num_meta=20)
    whole(frame.tensor_frame)
    own.reset_parameters()
    assert own.method.distributions.count.tolist() == [0, 0]


def test_it_can_be_saved(frame):
    _, whole = encoder_of(frame)
    whole(frame.tensor_frame)
    _, other = encoder_of(frame)
    other.load_state_dict(whole.state_dict())
    torch.testing.assert_close(whole.eval()(frame.tensor_frame)[0], other.eval()(frame.tensor_frame)[0])
