"""Planted problems that only a model's order of interaction can solve.

Three fields of six ids; every id carries a hidden sign. The labels are made of one sign at a time (`additive`), of the
product of two (`pair`: no field tells anything by itself) or of all three (`parity`: no pair tells anything either).
With `hidden=()` a model is left with its explicit interactions, and their order can be read off what it solves.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from daes.backbone import BACKBONES, build_backbone

IDS, FIELDS, DIM = 6, 3, 8
GRID = torch.cartesian_prod(*[torch.arange(IDS)] * FIELDS)
SIGNS = torch.tensor([1.0, -1.0] * (IDS // 2))[GRID]
LABELS = {
    "additive": (SIGNS.sum(dim=1) > 0).float(),
    "pair": (SIGNS[:, 0] * SIGNS[:, 1] > 0).float(),
    "parity": (SIGNS.prod(dim=1) > 0).float(),
}
HELD_OUT = torch.rand(len(GRID), generator=torch.Generator().manual_seed(5)) < 0.25
SMALL = {"hidden": (16, 8), "dropout": 0.0, "batch_norm": True, "layers": 2, "cin": (8, 8), "head_dim": 4}
SMALL |= {"neurons": 16, "block_dim": 8}

FIRST_ORDER = [("lr", {}), ("widedeep", {"hidden": ()})]
SECOND_ORDER = [
    ("fm", {}),
    ("fwfm", {}),
    ("deepfm", {"hidden": ()}),
    ("nfm", {"hidden": ()}),
    ("ipnn", {"hidden": ()}),
    ("opnn", {"hidden": ()}),
    ("opnn", {"hidden": (), "product": "kernel"}),
    ("dcn", {"hidden": (), "layers": 1}),
    ("dcnv2", {"hidden": (), "layers": 1}),
    ("xdeepfm", {"hidden": (), "cin": (8,)}),
]
THIRD_ORDER = [
    ("dcn", {"hidden": (), "layers": 2}),
    ("dcnv2", {"hidden": (), "layers": 2}),
    ("xdeepfm", {"hidden": (), "cin": (8, 8)}),
    ("afn", {"hidden": (), "deep": False}),
    ("autoint", {"deep": False}),
]
# AFM's attention weights depend on all pairs at once, so its order has no name; it is in none of the lists above.
DEEP = [(name, {}) for name in BACKBONES if name not in {"lr", "fm", "fwfm", "afm"}]


def describe(value):
    return value if isinstance(value, str) else "-".join(f"{key}={option}" for key, option in value.items())


def area_under_curve(scores, labels):
    """The share of (positive, negative) pairs in the right order, ties counting half."""
    gaps = scores[labels == 1].unsqueeze(1) - scores[labels == 0]
    return float(((gaps > 0).double() + (gaps == 0).double() / 2).mean())


def train(name, options, problem, *, held_out):
    """Fit field vectors and backbone; AUC on ids' combinations that were held out, or on all where none were."""
    torch.manual_seed(0)
    small = {key: value for key, value in SMALL.items() if key in BACKBONES[name].options}
    backbone = build_backbone(name, FIELDS, DIM, **{**small, **options})
    table = nn.Embedding(FIELDS * IDS, DIM)
    nn.init.normal_(table.weight, std=0.3)
    ids, labels = GRID + torch.arange(FIELDS) * IDS, LABELS[problem]
    seen = ~HELD_OUT if held_out else torch.ones_like(HELD_OUT)
    asked = HELD_OUT if held_out else seen
    optimiser = torch.optim.Adam([*table.parameters(), *backbone.parameters()], lr=0.02)
    for _ in range(200):
        optimiser.zero_grad()
        F.binary_cross_entropy_with_logits(backbone(table(ids[seen])), labels[seen]).backward()
        optimiser.step()
    backbone.eval()
    with torch.no_grad():
        return area_under_curve(backbone(table(ids[asked])), labels[asked])


@pytest.mark.parametrize(("name", "options"), FIRST_ORDER, ids=describe)
def test_first_order_solves_what_adds_up_and_no_pair(name, options):
    assert train(name, options, "additive", held_out=True) > 0.95
    assert abs(train(name, options, "pair", held_out=False) - 0.5) < 0.1


@pytest.mark.parametrize(("name", "options"), [*SECOND_ORDER, ("afm", {}), *THIRD_ORDER, *DEEP], ids=describe)
def test_second_order_and_higher_solve_pairs(name, options):
    assert train(name, options, "pair", held_out=True) > 0.9


@pytest.mark.parametrize(("name", "options"), SECOND_ORDER, ids=describe)
def test_second_order_does_not_solve_parity(name, options):
    assert abs(train(name, options, "parity", held_out=False) - 0.5) < 0.1


@pytest.mark.parametrize(("name", "options"), [*THIRD_ORDER, *DEEP], ids=describe)
def test_third_order_and_higher_solve_parity(name, options):
    assert train(name, options, "parity", held_out=False) > 0.9
