import re

import pytest

from daes import backbone
from daes.backbone import BACKBONES, PAPER_BACKBONES, Backbone, build_backbone

SHALLOW = {"lr", "fm", "fwfm", "afm"}


def test_the_six_of_the_paper_come_first():
    assert tuple(BACKBONES)[:6] == PAPER_BACKBONES


def test_every_backbone_is_registered_once_and_exported():
    classes = {value for value in vars(backbone).values() if isinstance(value, type) and issubclass(value, Backbone)}
    assert classes - {Backbone} == set(BACKBONES.values())
    assert len(set(BACKBONES.values())) == len(BACKBONES)
    assert {cls.__name__ for cls in BACKBONES.values()} <= set(backbone.__all__)


@pytest.mark.parametrize("name", BACKBONES)
def test_names_are_the_classes_in_lower_case(name):
    assert BACKBONES[name].__name__.lower() == name
    assert BACKBONES[name].__module__ == f"daes.backbone.{name}"


@pytest.mark.parametrize("name", BACKBONES)
def test_metadata_fills_a_row_of_the_table(name):
    info = BACKBONES[name].info
    assert info.title
    assert info.order
    assert re.fullmatch(r"\S.*, \S.* 20\d\d", info.reference)


def test_defaults_are_the_papers_settings():
    for name, cls in BACKBONES.items():
        options = cls.options()
        if name in SHALLOW:
            assert options.keys() <= {"dropout", "attention_dim"}
        else:
            assert (options["hidden"], options["dropout"], options["batch_norm"]) == ((128, 32, 8), 0.2, True)
    assert BACKBONES["dcnv2"].options()["layers"] == 3
    assert len(BACKBONES["xdeepfm"].options()["cin"]) == 3


@pytest.mark.parametrize("name", BACKBONES)
def test_default_options_are_accepted_back(name):
    options = BACKBONES[name].options()
    built = build_backbone(name, 3, 2, **options)
    assert type(built) is BACKBONES[name]
    assert built.state_dict().keys() == build_backbone(name, 3, 2).state_dict().keys()


def test_options_reach_the_model():
    built = build_backbone("dcnv2", 3, 2, raw_dim=4, hidden=[6], dropout=0.5, batch_norm=False, layers=1, rank=2)
    assert (built.num_fields, built.dim, built.raw_dim, built.input_dim) == (3, 2, 4, 10)
    assert (built.hidden, built.dropout, built.batch_norm, built.layers, built.rank) == ((6,), 0.5, False, 1, 2)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"name must be one of fnn, widedeep, .*masknet, got 'dlrm'"):
        build_backbone("dlrm", 3, 2)


def test_an_unknown_option_lists_the_known_ones():
    expected = "options of fnn must be among hidden, dropout, batch_norm, got 2"
    with pytest.raises(TypeError, match=expected):
        build_backbone("fnn", 3, 2, layers=2)
    with pytest.raises(TypeError, match=r"options of fm must be none, got \(8,\)"):
        build_backbone("fm", 3, 2, hidden=(8,))
