"""What every registered backbone must do, whatever its formula."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from daes.backbone import BACKBONES, build_backbone

NAMES = list(BACKBONES)
TAKING_PLAIN = [name for name, cls in BACKBONES.items() if cls.takes_plain]
SMALL = {"hidden": (8, 4), "head_dim": 4, "layers": 2, "cin": (6, 3), "neurons": 8, "blocks": 2, "block_dim": 6}


def build(name, num_fields=5, dim=4, *, plain=True, seed=0, **options):
    """A small model of the kind, with plain inputs where it takes them."""
    cls = BACKBONES[name]
    torch.manual_seed(seed)
    known = {key: value for key, value in {**SMALL, **options}.items() if key in cls.options}
    return build_backbone(name, num_fields, dim, plain_dim=3 if plain and cls.takes_plain else 0, **known)


def statistics(model):
    return {key: value.clone() for key, value in model.named_buffers()}


@pytest.mark.parametrize("name", NAMES)
def test_gradients_reach_every_parameter_and_input(name, make_inputs):
    model = build(name).double().train()
    inputs = [tensor.requires_grad_() for tensor in make_inputs(model, 32) if tensor is not None]
    model(*inputs).square().sum().backward()
    unreached = [key for key, value in model.named_parameters() if value.grad is None or not value.grad.any()]
    assert unreached == []
    for tensor in inputs:
        assert tensor.grad.abs().sum(dim=0).min() > 0


@pytest.mark.parametrize("name", NAMES)
def test_state_goes_through_safetensors(name, make_inputs, tmp_path):
    model = build(name, seed=1).train()
    inputs = make_inputs(model, 16)
    model(*inputs)
    assert all(value.is_floating_point() or "num_batches" in key for key, value in model.state_dict().items())
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    other = build(name, seed=2)
    assert not torch.equal(other.eval()(*inputs), model.eval()(*inputs))
    other.load_state_dict(load_file(tmp_path / "model.safetensors"), strict=True)
    assert torch.equal(other(*inputs), model(*inputs))


@pytest.mark.parametrize("name", NAMES)
def test_one_seed_gives_the_same_bits(name, make_inputs):
    def trained(seed):
        model = build(name, seed=seed).train()
        optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
        for step in range(2):
            optimiser.zero_grad()
            model(*make_inputs(model, 8, seed=step)).square().sum().backward()
            optimiser.step()
        return model.eval()(*make_inputs(model, 8))

    assert torch.equal(trained(3), trained(3))
    assert not torch.equal(trained(3), trained(4))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rows", [0, 1])
def test_a_batch_of_one_row_or_none(name, rows, make_inputs):
    model = build(name).train()
    model(*make_inputs(model, 16))
    before = statistics(model)
    inputs = make_inputs(model, rows)
    logit = model(*inputs)
    logit.sum().backward()
    assert logit.shape == (rows,)
    assert torch.isfinite(logit).all()
    assert all(torch.isfinite(value.grad).all() for value in model.parameters() if value.grad is not None)
    torch.testing.assert_close(statistics(model), before, rtol=0, atol=0)
    assert model.eval()(*inputs).shape == (rows,)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dim", [1, 4])
def test_one_field(name, dim, make_inputs):
    model = build(name, num_fields=1, dim=dim).train()
    logit = model(*make_inputs(model, 16))
    logit.sum().backward()
    assert logit.shape == (16,)
    assert torch.isfinite(logit).all()


@pytest.mark.parametrize("name", TAKING_PLAIN)
@pytest.mark.filterwarnings("error")
def test_plain_inputs_alone(name, make_inputs):
    model = build(name, num_fields=0).train()
    logit = model(*make_inputs(model, 16))
    logit.sum().backward()
    assert torch.isfinite(logit).all()
    assert logit.std() > 0


@pytest.mark.parametrize("name", NAMES)
def test_rows_do_not_mix_in_eval(name, make_inputs):
    model = build(name).double().eval()
    fields, plain = make_inputs(model, 6)
    alone = torch.cat([model(fields[i : i + 1], None if plain is None else plain[i : i + 1]) for i in range(6)])
    fields[3] = float("nan")
    together = model(fields, plain)
    assert together[3].isnan()
    keep = torch.tensor([0, 1, 2, 4, 5])
    torch.testing.assert_close(together[keep], alone[keep])


@pytest.mark.parametrize("name", TAKING_PLAIN)
def test_plain_inputs_count(name, make_inputs):
    model = build(name).eval()
    fields, plain = make_inputs(model, 6)
    assert (model(fields, plain) != model(fields, plain + 1)).any()


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(TAKING_PLAIN)))
def test_plain_inputs_are_refused_not_ignored(name):
    with pytest.raises(ValueError, match="plain_dim must be 0"):
        build_backbone(name, 5, 4, plain_dim=3)


@pytest.mark.parametrize("name", [name for name in NAMES if "dropout" in BACKBONES[name].options])
def test_dropout_works_in_train_alone(name, make_inputs):
    model = build(name, dropout=0.5, batch_norm=False).train()
    inputs = make_inputs(model, 32)
    assert not torch.equal(model(*inputs), model(*inputs))
    model.eval()
    assert torch.equal(model(*inputs), model(*inputs))
    still = build(name, dropout=0.0, batch_norm=False).train()
    assert torch.equal(still(*inputs), still(*inputs))


@pytest.mark.parametrize("name", NAMES)
def test_precision_follows_the_module(name, make_inputs):
    model = build(name).eval()
    fields, plain = make_inputs(model, 6)
    single = model(fields, plain)
    assert single.dtype == torch.float32
    model.double()
    double = model(fields.double(), None if plain is None else plain.double())
    assert double.dtype == torch.float64
    torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_autocast_gives_full_precision_logits(name, make_inputs):
    model = build(name, dropout=0.0).train()
    inputs = make_inputs(model, 32)
    exact = model(*inputs)
    with torch.autocast("cpu", torch.bfloat16):
        logit = model(*inputs)
    logit.sum().backward()
    assert logit.dtype == torch.float32
    assert all(torch.isfinite(value.grad).all() for value in model.parameters())
    scale = float(exact.detach().abs().max())
    torch.testing.assert_close(logit, exact, rtol=0.05, atol=0.05 * scale)
