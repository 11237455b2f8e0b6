"""Checks of a backbone's logits, gradients and state."""

import pickle
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor

from daes.backbone.base import Backbone
from daes.backbone.checks.sample import DIM, NUM_FIELDS, PLAIN_DIM, Make, fresh, make_inputs, new, takes_plain, trained
from daes.checking import ensure, ensure_close, ensure_finite, ensure_same, ensure_same_state, error_of, state_of
from daes.extras import require


def check_shape_and_dtype(make: Make) -> None:
    """Logits are (B,), in the dtype of the parameters."""
    backbone = trained(make)
    logits = backbone(*make_inputs(backbone, 6))
    ensure(logits.shape == (6,), f"logits must have shape (6,), got {tuple(logits.shape)}")
    ensure(logits.dtype == torch.float32, f"logits must be float32, got {logits.dtype}")
    inputs = [tensor.double() for tensor in make_inputs(backbone, 6)]
    double = backbone.double()(*inputs)
    ensure(double.dtype == torch.float64, f"logits must be float64, got {double.dtype}")
    ensure_close(logits.double(), double, "logits in float32 and in float64", tolerance=1e-4)


def check_wrong_input(make: Make) -> None:
    """Inputs of a wrong shape or type raise a ValueError or a TypeError."""
    backbone = trained(make)
    fields, *plain = make_inputs(backbone, 6)
    wrong: dict[str, tuple[Tensor | None, ...]] = {
        "fields of two dimensions": (fields.flatten(1), *plain),
        "a field too few": (fields[:, 1:], *plain),
        "vectors too short": (fields[:, :, 1:], *plain),
        "fields of integers": (fields.long(), *plain),
    }
    if plain:
        wrong["no plain inputs"] = (fields,)
        wrong["a plain input too few"] = (fields, plain[0][:, 1:])
        wrong["plain inputs of fewer rows"] = (fields, plain[0][1:])
        wrong["plain inputs of integers"] = (fields, plain[0].long())
    else:
        wrong["plain inputs that are not expected"] = (fields, torch.ones(6, 1))
    for what, inputs in wrong.items():
        error_of(partial(backbone, *inputs), ValueError, TypeError, what=what)


def check_rows_are_independent(make: Make) -> None:
    """In `eval()` the logit of a row does not depend on the other rows, even if they have NaN."""
    backbone = trained(make).double()
    inputs = make_inputs(backbone, 6)
    alone = torch.cat([backbone(*(tensor[row : row + 1] for tensor in inputs)) for row in range(6)])
    inputs[0][3] = torch.nan
    together = backbone(*inputs)
    ensure(bool(together[3].isnan()), "a row of NaN must have the logit NaN")
    others = torch.tensor([0, 1, 2, 4, 5])
    ensure_close(together[others], alone[others], "rows one by one and together")


def check_few_rows(make: Make) -> None:
    """In `train()`, one row has one finite logit, an empty batch none; neither changes the statistics."""
    backbone = fresh(make)
    backbone(*make_inputs(backbone, 16))
    before = state_of(backbone)
    for rows in (1, 0):
        logits = backbone(*make_inputs(backbone, rows))
        ensure(logits.shape == (rows,), f"logits must have shape ({rows},), got {tuple(logits.shape)}")
        ensure_finite(logits, "the logit of a single row")
        logits.sum().backward()
        for name, parameter in backbone.named_parameters():
            ensure_finite(torch.zeros(()) if parameter.grad is None else parameter.grad, f"the gradient of {name}")
        ensure_same_state(state_of(backbone), before, f"the state after {rows} rows")
    ensure(backbone.eval()(*make_inputs(backbone, 0)).shape == (0,), "no rows must give no logit in eval()")


def check_one_field(make: Make) -> None:
    """One field is enough, even with one dimension."""
    for dim in (1, DIM):
        backbone = new(make, 1, dim, plain_dim=0).train()
        logits = backbone(*make_inputs(backbone, 16))
        logits.sum().backward()
        ensure_finite(logits, f"logits of one field of dimension {dim}")


def check_plain_inputs(make: Make) -> None:
    """A backbone that takes plain inputs uses them, and needs no fields then; for another one they are an error."""
    if not takes_plain(make):
        call = partial(make, NUM_FIELDS, DIM, plain_dim=PLAIN_DIM)
        found = error_of(call, ValueError, what="plain_dim > 0 with takes_plain=False")
        ensure("plain_dim" in found, f"the error must name plain_dim, got {found}")
        return
    backbone = trained(make)
    fields, plain = make_inputs(backbone, 6)
    ensure(bool((backbone(fields, plain) != backbone(fields, plain + 1)).any()), "plain inputs must change the logits")
    alone = new(make, 0, plain_dim=PLAIN_DIM).train()
    logits = alone(*make_inputs(alone, 16))
    logits.sum().backward()
    ensure_finite(logits, "logits of plain inputs alone")
    ensure(float(logits.detach().std()) > 0, "plain inputs alone must give different rows different logits")


def check_gradients_reach_every_parameter(make: Make) -> None:
    """Every parameter and every input gets a gradient that is not 0."""
    backbone = fresh(make).double()
    inputs = [tensor.requires_grad_() for tensor in make_inputs(backbone, 32)]
    backbone(*inputs).square().sum().backward()
    for name, parameter in backbone.named_parameters():
        if parameter.grad is None:
            raise AssertionError(f"{name} must get a gradient, got None")
        ensure(bool(parameter.grad.any()), f"{name} must get a gradient that is not 0 everywhere")
    for name, tensor in zip(("fields", "plain"), inputs, strict=False):
        reached = tensor.grad is not None and float(tensor.grad.abs().sum(dim=0).min()) > 0
        ensure(reached, f"every entry of {name} must get a gradient that is not 0")


def check_eval_changes_nothing(make: Make) -> None:
    """In `eval()` there is no randomness and no statistic changes."""
    backbone = trained(make)
    before = state_of(backbone)
    inputs = make_inputs(backbone, 32, seed=5)
    ensure_same(backbone(*inputs), backbone(*inputs), "logits of the same rows in eval()")
    ensure_same_state(state_of(backbone), before, "the state before and after a forward in eval()")


def check_seeds_reproduce(make: Make) -> None:
    """Two backbones with the same seed are bitwise equal after training; other seeds differ."""
    first, again, other = (_logits(trained(make, seed)) for seed in (3, 3, 4))
    ensure_same(again, first, "logits of two trainings by one seed")
    ensure(not torch.equal(other, first), "two seeds must give different logits")


def check_state_round_trip(make: Make) -> None:
    """Another backbone that loads the state, saved as safetensors, strictly, has the same logits."""
    safetensors = require("safetensors.torch")
    backbone, other = trained(make, seed=1), trained(make, seed=2)
    ensure(not torch.equal(_logits(other), _logits(backbone)), "two seeds must give different logits")
    other.load_state_dict(safetensors.load(safetensors.save(backbone.state_dict())), strict=True)
    ensure_same(_logits(other), _logits(backbone), "logits after loading the state")


def check_copies(make: Make) -> None:
    """`deepcopy` and `pickle` give independent backbones with the same logits."""
    backbone = trained(make)
    expected = _logits(backbone)
    for copied in (deepcopy(backbone), pickle.loads(pickle.dumps(backbone))):
        ensure_same(_logits(copied), expected, "logits of a copy")
        with torch.no_grad():
            for parameter in copied.parameters():
                parameter.add_(1.0)
        ensure_same(_logits(backbone), expected, "logits after a copy was changed")


def check_autocast(make: Make) -> None:
    """Under autocast to bfloat16, logits are float32 and close to those without."""
    backbone = trained(make)
    inputs = make_inputs(backbone, 32)
    exact = backbone(*inputs)
    with torch.autocast("cpu", torch.bfloat16):
        logits = backbone(*inputs)
    ensure(logits.dtype == torch.float32, f"logits under autocast must be float32, got {logits.dtype}")
    ensure_close(logits, exact, "logits under autocast and without", tolerance=0.05)
    logits.sum().backward()
    for name, parameter in backbone.named_parameters():
        ensure_finite(torch.zeros(()) if parameter.grad is None else parameter.grad, f"the gradient of {name}")


def _logits(backbone: Backbone) -> Tensor:
    with torch.no_grad():
        logits: Tensor = backbone.eval()(*make_inputs(backbone, 16, seed=7))
        return logits
