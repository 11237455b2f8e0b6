import pytest
import torch
from torch import nn

from daes.backbone.layers import MLP, BatchNorm, HiddenLayers, InnerProducts, Readout, pool_pairs


@pytest.mark.parametrize("shape", [(8, 3), (8, 3, 5)])
def test_batch_norm_is_pytorchs_own_for_two_rows_and_more(shape):
    inputs = torch.randn(shape)
    ours, theirs = BatchNorm(3), nn.BatchNorm1d(3)
    for rows in (8, 2):
        torch.testing.assert_close(ours(inputs[:rows]), theirs(inputs[:rows]), rtol=0, atol=0)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(ours.eval()(inputs), theirs.eval()(inputs), rtol=0, atol=0)


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("tail", [(), (5,), (1,)])
def test_batch_norm_takes_a_small_batch_by_its_running_statistics(rows, tail):
    norm = BatchNorm(3)
    norm(torch.randn(8, 3, *tail) * 3 + 1)
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    inputs = torch.randn(rows, 3, *tail)
    trained = norm(inputs)
    torch.testing.assert_close(norm.state_dict(), before, rtol=0, atol=0)
    torch.testing.assert_close(trained, norm.eval()(inputs), rtol=0, atol=0)


def test_hidden_layers_come_in_order():
    kinds = [type(part) for part in HiddenLayers(6, (4, 2), dropout=0.3, batch_norm=True, slope=0.1)]
    assert kinds == [nn.Linear, BatchNorm, nn.LeakyReLU, nn.Dropout] * 2
    kinds = [type(part) for part in HiddenLayers(6, (4,), dropout=0.3, batch_norm=False, slope=0.0)]
    assert kinds == [nn.Linear, nn.ReLU, nn.Dropout]


def test_a_linear_map_before_batch_norm_needs_no_bias():
    assert HiddenLayers(6, (4,), dropout=0.0, batch_norm=True, slope=0.1)[0].bias is None
    assert HiddenLayers(6, (4,), dropout=0.0, batch_norm=False, slope=0.1)[0].bias is not None


def test_dropout_rate_reaches_the_layers():
    assert [part.p for part in list(HiddenLayers(6, (4, 2), dropout=0.3, batch_norm=True, slope=0.1))[3::4]] == [
        0.3,
        0.3,
    ]


def test_an_mlp_without_hidden_layers_is_a_linear_map():
    mlp = MLP(HiddenLayers(4, (), dropout=0.5, batch_norm=True, slope=0.1))
    inputs = torch.randn(6, 4)
    torch.testing.assert_close(mlp(inputs), inputs @ mlp.readout.weight[0] + mlp.readout.bias)


def test_readout_keeps_full_precision_under_autocast():
    readout, inputs = Readout(64), torch.randn(100, 64)
    exact = readout(inputs)
    with torch.autocast("cpu", torch.bfloat16):
        cast = readout(inputs)
        without_bias = Readout(64, bias=False)(inputs)
    assert cast.dtype == without_bias.dtype == torch.float32
    torch.testing.assert_close(cast, exact)


def test_readout_starts_as_a_linear_layer_does():
    weights = torch.cat([Readout(16).weight.flatten() for _ in range(200)])
    assert weights.abs().max() <= 0.25
    assert abs(weights.std() - 0.25 / 3**0.5) < 0.005


@pytest.mark.parametrize("num_fields", [1, 2, 5])
def test_inner_products_of_pairs(num_fields):
    fields = torch.randn(3, num_fields, 4, dtype=torch.float64)
    expected = [
        [float(torch.dot(e[i], e[j])) for i in range(num_fields) for j in range(i + 1, num_fields)] for e in fields
    ]
    expected = torch.tensor(expected, dtype=torch.float64).reshape(3, -1)
    torch.testing.assert_close(InnerProducts(num_fields)(fields), expected)


def test_pooled_pairs_of_half_precision_keep_their_bits():
    generator = torch.Generator().manual_seed(0)
    fields = (torch.randn(50, 30, 8, generator=generator) + 1).bfloat16()
    exact = pool_pairs(fields.double())
    pooled = pool_pairs(fields)
    assert pooled.dtype == torch.bfloat16
    # Half a unit in the last of bfloat16's eight bits.
    torch.testing.assert_close(pooled.double(), exact, rtol=2**-8, atol=1e-3)
