import pytest

from daes.adapters.building import build_method
from daes.embedding import build_embedding


def test_a_module_is_taken_as_it_is():
    module = build_embedding("fe", 3, 4)
    assert build_method(module, 3, 4) is module


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        ((build_embedding("fe", 2, 4), 3, 4), {}, "method must have num_features=3, got num_features=2"),
        ((build_embedding("fe", 3, 5), 3, 4), {}, "method must have dim=4, got dim=5"),
        (
            (build_embedding("fe", 3, 4), 3, 4),
            {"bins": 3},
            "options of the method must be given to the module itself",
        ),
        (("youtube", 3, 4), {}, "method must give one vector per feature, 3 for 3 features; YouTube gives 0"),
    ],
)
def test_what_does_not_fit(arguments, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        build_method(*arguments, **options)
