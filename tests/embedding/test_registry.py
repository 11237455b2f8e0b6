"""Methods by name."""

import pytest

from daes.embedding import DAES, METHODS, NumericalEmbedding, build_embedding
from daes.embedding.registry import FAMILIES


def test_every_method_of_the_comparison_is_there_in_the_order_of_tables() -> None:
    assert list(METHODS) == [
        *("efd", "ewd", "ld", "td", "multihot"),
        *("youtube", "dlrm", "fe", "autodis", "deer", "keyvalue", "narydis", "plr"),
        "ple",
        *("dae", "daes-gate", "daes-tran", "daes"),
    ]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_comes_with_what_is_known_of_it(name: str) -> None:
    entry, method = METHODS[name], build_embedding(name, 3, 8)
    assert type(method) is entry.cls
    assert isinstance(method, NumericalEmbedding)
    assert (method.num_features, method.dim) == (3, 8)
    assert entry.family in FAMILIES
    assert entry.reference is not None
    assert entry.streaming != method.offline
    assert entry.field_aware == method.uses_context
    assert entry.reconstruction == ("reconstruction" in (type(method).__doc__ or ""))
    assert METHODS.entry_of(method) is entry


def test_titles_tell_the_methods_apart() -> None:
    assert len({entry.title for entry in METHODS.values()}) == len(METHODS)


def test_presets_are_the_papers_settings_and_ours() -> None:
    gate, tran, ours = (build_embedding(name, 2) for name in ("daes-gate", "daes-tran", "daes"))
    plain = DAES(2)
    for module, modulation in ((gate, "gate"), (tran, "tran")):
        assert isinstance(module, DAES)
        assert (module.modulation, module.beta, module.basis, module.linear) == (modulation, 0.5, "thermometer", None)
        assert module.knots.shape == (2, 11)
        assert module.distributions.reservoir_size == 100_000
    assert gate.state_dict().keys() == plain.state_dict().keys()
    assert isinstance(ours, DAES)
    assert (ours.basis, ours.linear, ours.knots.shape) == ("hat", "value", (2, 101))


def test_given_options_win_over_a_preset() -> None:
    module = build_embedding("daes", 2, 4, modulation="gate", knots=7)
    assert (module.modulation, module.basis, module.knots.shape) == ("gate", "hat", (2, 8))
    assert METHODS["daes"].preset["knots"] == 100


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match=r"method must be one of efd, .*got 'autodiss' \(did you mean 'autodis'\?\)"):
        build_embedding("autodiss", 2)
    with pytest.raises(TypeError, match="efd has no option 'num_meta'; it has num_bins, init_std"):
        build_embedding("efd", 2, num_meta=5)
    with pytest.raises(ValueError, match="num_features must be a positive integer, got 0"):
        build_embedding("efd", 0)
    with pytest.raises(ValueError, match="dim must be a positive integer, got True"):
        build_embedding("daes", 2, True)
