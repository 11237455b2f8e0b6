"""Names for classes, and objects that remember their arguments."""

import copy
import inspect
import pickle

import pytest

from daes.registry import Configurable, Entry, Reference, Registry


class Base(Configurable):
    def __init__(self, size, *, colour="red", rough=False):
        self.size, self.colour, self.rough = size, colour, rough


class Derived(Base):
    def __init__(self, size, *, holes=0, **settings):
        super().__init__(size + holes, **settings)


class Plain(Base):
    pass


class Sized(Entry):
    inputs = ("size",)


@pytest.fixture
def registry():
    return Registry("thing", Sized)


class TestConfigurable:
    @pytest.mark.parametrize(
        ("made", "arguments"),
        [
            (Base(3), {"size": 3}),
            (Base(size=3, rough=True), {"size": 3, "rough": True}),
            (Derived(3, holes=2, colour="blue"), {"size": 3, "holes": 2, "colour": "blue"}),
            (Plain(1), {"size": 1}),
        ],
    )
    def test_the_arguments_given_are_remembered(self, made, arguments):
        assert made.arguments == arguments
        assert copy.deepcopy(made).arguments == arguments
        assert pickle.loads(pickle.dumps(made)).arguments == arguments

    def test_the_signature_is_that_of_the_class(self):
        assert str(inspect.signature(Derived)) == "(size, *, holes=0, **settings)"


class TestEntries:
    def test_options_are_those_of_the_base_classes_too(self, registry):
        registry.register("derived", title="Derived", preset={"colour": "blue"})(Derived)
        entry = registry["derived"]
        assert entry.options == {"holes": 0, "colour": "blue", "rough": False}
        assert entry.build(2).colour == "blue"
        assert entry.build(2, colour="green").colour == "green"
        with pytest.raises(TypeError, match="derived has no option 'depth'; it has holes, colour, rough"):
            entry.build(2, depth=1)

    def test_options_of_a_preset_of_old_keep_what_they_meant(self, registry):
        registry.register("base", title="Base", preset={"colour": "blue", "rough": True})(Base)
        assert registry["base"].spelled_out({"colour": "blue"}) == {"colour": "blue", "rough": False}

    def test_a_preset_of_unknown_options_is_refused(self, registry):
        with pytest.raises(TypeError, match="base has no option 'depth'"):
            registry.register("base", title="Base", preset={"depth": 1})(Base)


class TestRegistry:
    def test_entries_are_sorted_by_order_then_by_name(self, registry):
        for name, order in {"b": 2, "c": float("inf"), "a": float("inf"), "d": 1}.items():
            registry.register(name, title=name, order=order)(Base)
        assert list(registry) == ["d", "b", "a", "c"]
        del registry["b"]
        assert list(registry) == ["d", "a", "c"]

    def test_a_name_belongs_to_one_class_that_may_be_defined_again(self, registry):
        registry.register("base", title="Base")(Base)
        again = type("Base", (Base,), {"__module__": Base.__module__, "__qualname__": Base.__qualname__})
        registry.register("base", title="Base")(again)
        assert registry["base"].cls is again
        with pytest.raises(ValueError, match=r"thing 'base' is already registered, for .*Base"):
            registry.register("base", title="Derived")(Derived)

    def test_an_unknown_name_gets_the_closest_one_suggested(self, registry):
        registry.register("base", title="Base")(Base)
        with pytest.raises(ValueError, match=r"thing must be one of base, got 'bsae' \(did you mean 'base'\?\)"):
            registry.find("bsae")
        with pytest.raises(ValueError, match=r"thing must be one of base, got 'zzz'$"):
            registry.find("zzz")
        assert "bsae" not in registry
        assert registry.get("bsae") is None

    def test_an_object_finds_the_entry_whose_preset_it_has(self, registry):
        registry.register("plain", title="as it is")(Base)
        registry.register("blue", title="blue", preset={"colour": "blue"})(Base)
        registry.register("rough", title="rough and blue", preset={"colour": "blue", "rough": True})(Base)
        names = [registry.entry_of(made).name for made in (Base(1), Base(1, colour="blue"), registry["rough"].build(1))]
        assert names == ["plain", "blue", "rough"]
        assert registry.entry_of(Derived(1)) is None


@pytest.mark.parametrize(
    ("authors", "short"),
    [
        ("Steffen Rendle", "Rendle, V 2010"),
        ("Xiangnan He, Tat-Seng Chua", "He & Chua, V 2010"),
        ("Ann One, Bea Two, Cy Three", "One et al., V 2010"),
        ("Ann One et al.", "One et al., V 2010"),
    ],
)
def test_references_in_a_few_words(authors, short):
    assert Reference(authors, "Title", "V", 2010).short == short
    assert str(Reference(authors, "Title", "V", 2010)) == f"{authors.removesuffix('.')}. Title. V 2010."
