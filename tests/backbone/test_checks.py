"""Every registered backbone passes every check, and each check finds the fault that it is there for."""

import functools

import pytest
import torch
from torch import nn

from daes.backbone import BACKBONES, Backbone, build_backbone
from daes.backbone.checks import CHECKS, check_backbone, graphs

SMALL = {"hidden": (8, 4), "head_dim": 4, "layers": 2, "cin": (6, 3), "neurons": 8, "blocks": 2, "block_dim": 6}
VARIANTS = {
    "opnn, kernel": ("opnn", {"product": "kernel"}),
    "dcnv2, low rank": ("dcnv2", {"rank": 2}),
    "autoint, no MLP beside": ("autoint", {"deep": False}),
}
ALL = {**{name: (name, {}) for name in BACKBONES}, **VARIANTS}
GRAPHS = [name for name in vars(graphs) if name.startswith("check_")]


def maker(label):
    name, options = ALL[label]
    small = {option: value for option, value in SMALL.items() if option in BACKBONES[name].options}
    return functools.partial(build_backbone, name, **{**small, **options})


class Together(Backbone):
    """All backbones on the same inputs, because making a graph costs seconds, however small it is."""

    def __init__(self, num_fields, dim, *, plain_dim):
        super().__init__(num_fields, dim, plain_dim=plain_dim)
        self.models = nn.ModuleList()
        for label, (name, options) in ALL.items():
            takes_plain = BACKBONES[name].takes_plain and options.get("deep", True)
            self.models.append(maker(label)(num_fields, dim, plain_dim=plain_dim if takes_plain else 0))

    def _logit(self, fields, plain):
        return sum(model(fields, plain if model.plain_dim else None) for model in self.models)


@pytest.mark.parametrize("check", [check for check in CHECKS if check not in GRAPHS])
@pytest.mark.parametrize("label", [label for label in ALL if "no MLP" not in label])
def test_every_backbone_passes(label, check):
    CHECKS[check](maker(label))


@pytest.mark.parametrize("check", GRAPHS)
def test_every_backbone_is_a_graph(check):
    CHECKS[check](Together)


@pytest.mark.parametrize("name", [name for name in BACKBONES if "dropout" in BACKBONES[name].options])
def test_dropout_works_in_train_alone(name):
    fields = torch.randn(32, 5, 4, generator=torch.Generator().manual_seed(0))
    options = {"batch_norm": False} if "batch_norm" in BACKBONES[name].options else {}
    dropping, still = (maker(name)(5, 4, plain_dim=0, dropout=rate, **options).train() for rate in (0.5, 0.0))
    assert not torch.equal(dropping(fields), dropping(fields))
    assert torch.equal(still(fields), still(fields))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_takes_one_row_in_training(backend):
    torch._dynamo.reset()
    model = build_backbone("nfm", 5, 4, hidden=(8,), dropout=0.0, batch_norm=True).train()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for rows in (6, 1):
        fields = torch.randn(rows, 5, 4)
        compiled(fields).sum().backward()
    before = model.norm.running_mean.clone()
    torch.testing.assert_close(compiled(fields), model(fields))
    assert torch.equal(model.norm.running_mean, before)


class Own(Backbone):
    """As a user might write one: normalised inputs, a linear map, a little dropout."""

    def __init__(self, num_fields, dim, *, plain_dim=0):
        super().__init__(num_fields, dim, plain_dim=plain_dim, hidden=(8,))
        self.mlp = self._mlp(self.input_dim)

    def _logit(self, fields, plain):
        return self.mlp(self.flatten(fields, plain))


class KeepsAColumn(Own):
    def _logit(self, fields, plain):
        return super()._logit(fields, plain).unsqueeze(1)


class Unchecked(Own):
    def _check(self, fields, plain):
        return

    def _logit(self, fields, plain):
        return super()._logit(torch.zeros(len(fields), self.num_fields, self.dim), self.zeros(fields))

    def zeros(self, fields):
        return torch.zeros(len(fields), self.plain_dim) if self.plain_dim else None


class Centred(Own):
    def _logit(self, fields, plain):
        logits = super()._logit(fields, plain)
        return logits - logits.mean()


class NormedByTorch(Own):
    def __init__(self, num_fields, dim, *, plain_dim=0):
        super().__init__(num_fields, dim, plain_dim=plain_dim)
        self.norm = nn.BatchNorm1d(self.input_dim)

    def _logit(self, fields, plain):
        return self.mlp(self.norm(self.flatten(fields, plain)))


class FirstTwoFields(Own):
    def _logit(self, fields, plain):
        return super()._logit(fields, plain) + (fields[:, 0] * fields[:, 1]).sum(dim=1)


class IgnoresPlain(Own):
    def _logit(self, fields, plain):
        return super()._logit(fields, None if plain is None else 0 * plain)


class Unused(Own):
    def __init__(self, num_fields, dim, *, plain_dim=0):
        super().__init__(num_fields, dim, plain_dim=plain_dim)
        self.spare = nn.Parameter(torch.ones(2))


class AlwaysNoisy(Own):
    def _logit(self, fields, plain):
        return super()._logit(fields, plain) + torch.rand(len(fields))


class SeedsItself(Own):
    def __init__(self, num_fields, dim, *, plain_dim=0):
        with torch.random.fork_rng(devices=[]):
            torch.seed()
            super().__init__(num_fields, dim, plain_dim=plain_dim)


class HidesItsScale(Own):
    def __init__(self, num_fields, dim, *, plain_dim=0):
        super().__init__(num_fields, dim, plain_dim=plain_dim)
        self.scale = torch.rand(1) + 0.5

    def _logit(self, fields, plain):
        return super()._logit(fields, plain) * self.scale


class SharesItsBias(Own):
    bias = nn.Parameter(torch.zeros(1))

    def __init__(self, num_fields, dim, *, plain_dim=0):
        super().__init__(num_fields, dim, plain_dim=plain_dim)
        self.register_parameter("shared", self.bias)

    def __deepcopy__(self, memo):
        return self

    def _logit(self, fields, plain):
        return super()._logit(fields, plain) + self.shared


class HalfUnderAutocast(Own):
    def _logit(self, fields, plain):
        logits = super()._logit(fields, plain)
        return logits.bfloat16() if torch.is_autocast_enabled("cpu") else logits


class OtherwiseCompiled(Own):
    def _logit(self, fields, plain):
        return super()._logit(fields, plain) * (0.5 if torch.compiler.is_compiling() else 1.0)


FAULTS = {
    "check_shape_and_dtype": KeepsAColumn,
    "check_wrong_input": Unchecked,
    "check_rows_are_independent": Centred,
    "check_few_rows": NormedByTorch,
    "check_one_field": FirstTwoFields,
    "check_plain_inputs": IgnoresPlain,
    "check_gradients_reach_every_parameter": Unused,
    "check_eval_changes_nothing": AlwaysNoisy,
    "check_seeds_reproduce": SeedsItself,
    "check_state_round_trip": HidesItsScale,
    "check_copies": SharesItsBias,
    "check_autocast": HalfUnderAutocast,
    "check_compile": OtherwiseCompiled,
    "check_export": OtherwiseCompiled,
    "check_onnx": OtherwiseCompiled,
}


def test_a_backbone_of_ones_own_passes():
    check_backbone(Own)


@pytest.mark.parametrize("check", FAULTS)
def test_a_fault_is_found(check):
    with pytest.raises((AssertionError, RuntimeError, ValueError, IndexError)):
        CHECKS[check](FAULTS[check])


def test_every_check_has_a_fault_to_find():
    assert CHECKS.keys() == FAULTS.keys()


def test_a_backbone_that_should_refuse_plain_inputs_is_found():
    class Silent(Own):
        takes_plain = False

        def __init__(self, num_fields, dim, *, plain_dim=0):
            super().__init__(num_fields, dim)

    with pytest.raises(AssertionError, match="takes_plain=False must raise a ValueError"):
        CHECKS["check_plain_inputs"](Silent)


def test_what_is_found_is_named():
    with pytest.raises(AssertionError, match="check_plain_inputs: plain inputs must change the logits"):
        check_backbone(IgnoresPlain, skip=CHECKS.keys() - {"check_plain_inputs"})
    with pytest.raises(ValueError, match="skip must hold names of checks, got check_all"):
        check_backbone(Own, skip=["check_all"])
