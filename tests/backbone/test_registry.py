import pytest

from daes.backbone import BACKBONES, build_backbone

SHALLOW = {"lr", "fm", "fwfm", "afm"}


def test_the_six_of_the_paper_come_first():
    assert list(BACKBONES) == [
        *("fnn", "widedeep", "deepfm", "ipnn", "dcnv2", "xdeepfm"),
        *("lr", "fm", "fwfm", "nfm", "afm", "opnn", "autoint", "dcn", "afn", "masknet"),
    ]


@pytest.mark.parametrize("name", BACKBONES)
def test_names_are_the_classes_in_lower_case(name):
    assert BACKBONES[name].cls.__name__.lower() == name
    assert BACKBONES[name].cls.__module__ == f"daes.backbone.{name}"


@pytest.mark.parametrize("name", BACKBONES)
def test_metadata_fills_a_row_of_the_table(name):
    entry = BACKBONES[name]
    assert entry.title
    assert entry.interactions
    assert entry.reference is not None


def test_defaults_are_the_papers_widths_without_dropout_and_batch_norm():
    for name, entry in BACKBONES.items():
        options = entry.options
        if name in SHALLOW:
            assert options.keys() <= {"dropout", "attention_dim", "pairs"}
        else:
            assert (options["hidden"], options["dropout"], options["batch_norm"]) == ((128, 32, 8), 0.0, False)
            assert options["slope"] == 0.1
    assert BACKBONES["dcnv2"].options["layers"] == 3
    assert len(BACKBONES["xdeepfm"].options["cin"]) == 3


@pytest.mark.parametrize("name", BACKBONES)
def test_default_options_are_accepted_back(name):
    built = build_backbone(name, 3, 2, **BACKBONES[name].options)
    assert type(built) is BACKBONES[name].cls
    assert built.state_dict().keys() == build_backbone(name, 3, 2).state_dict().keys()


def test_options_reach_the_model():
    built = build_backbone("dcnv2", 3, 2, plain_dim=4, hidden=[6], dropout=0.5, batch_norm=False, layers=1, rank=2)
    assert (built.num_fields, built.dim, built.plain_dim, built.input_dim) == (3, 2, 4, 10)
    assert (built.hidden, built.dropout, built.batch_norm, built.layers, built.rank) == ((6,), 0.5, False, 1, 2)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"backbone must be one of fnn, widedeep, .*masknet, got 'dlrm'"):
        build_backbone("dlrm", 3, 2)


def test_an_unknown_option_lists_the_known_ones():
    with pytest.raises(TypeError, match="fnn has no option 'layers'; it has hidden, dropout, batch_norm, slope"):
        build_backbone("fnn", 3, 2, layers=2)
    with pytest.raises(TypeError, match="lr has no option 'hidden'; it has none"):
        build_backbone("lr", 3, 2, hidden=(8,))
