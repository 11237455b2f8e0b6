"""Methods by name."""

import pytest

from daes.embedding import DAES, METHODS, PRESETS, NumericalEmbedding, build_embedding
from daes.embedding.registry import method_info

FAMILIES = {"static binning", "neural", "interpolated binning", "dynamic quantile"}


def test_every_method_of_the_comparison_is_there() -> None:
    assert set(METHODS) == {
        *("efd", "ewd", "ld", "td", "multihot", "youtube", "dlrm", "fe", "autodis", "deer", "keyvalue", "narydis"),
        *("ple", "dae", "plr", "daes-gate", "daes-tran", "daes"),
    }


@pytest.mark.parametrize("name", METHODS)
def test_a_method_comes_with_what_is_known_of_it(name: str) -> None:
    method = build_embedding(name, 3, 8)
    assert isinstance(method, METHODS[name])
    assert isinstance(method, NumericalEmbedding)
    assert (method.num_features, method.dim) == (3, 8)
    info = method.info
    assert info.family in FAMILIES
    assert info.title
    assert info.reference
    assert info.streaming != method.offline
    assert info.reconstruction == ("reconstruction" in (type(method).__doc__ or ""))


def test_presets_are_the_papers_settings_and_ours() -> None:
    gate, tran, ours = (build_embedding(name, 2) for name in ("daes-gate", "daes-tran", "daes"))
    plain = DAES(2)
    for module, modulation in ((gate, "gate"), (tran, "tran")):
        assert isinstance(module, DAES)
        assert (module.modulation, module.beta, module.basis, module.linear) == (modulation, 0.5, "thermometer", None)
        assert module.knots.shape == (2, 11)
        assert module.bank.size == 100_000
    assert gate.state_dict().keys() == plain.state_dict().keys()
    assert isinstance(ours, DAES)
    assert (ours.basis, ours.linear, ours.knots.shape) == ("hat", "value", (2, 101))


def test_what_is_said_of_a_name_fits_its_preset() -> None:
    assert len({method_info(name).title for name in METHODS}) == len(METHODS)
    for name in METHODS:
        assert method_info(name).field_aware == (getattr(build_embedding(name, 2), "modulation", None) is not None)


def test_given_options_win_over_a_preset() -> None:
    module = build_embedding("daes", 2, 4, modulation="gate", knots=7)
    assert (module.modulation, module.basis, module.knots.shape) == ("gate", "hat", (2, 8))
    assert PRESETS["daes"]["knots"] == 100


def test_mistakes_are_named() -> None:
    with pytest.raises(
        ValueError, match=r"method must be one of efd, .*method='autodiss' \(did you mean 'autodis'\?\)"
    ):
        build_embedding("autodiss", 2)
    with pytest.raises(TypeError, match="efd has no option 'num_meta'; it has num_bins, init_std"):
        build_embedding("efd", 2, num_meta=5)
    with pytest.raises(ValueError, match="num_features=0"):
        build_embedding("efd", 0)
    with pytest.raises(ValueError, match="dim=True"):
        build_embedding("daes", 2, True)
