"""A state survives being taken apart and put together: types, dtypes, shapes, bits."""

import json
import math
from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from daes.storage.nested_state import MAX_DEPTH, EncodedState, StateError, StoredArray, decode_state, encode_state

TORCH_DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
]
NUMPY_DTYPES = ["?", "u1", "i1", "<u2", "<i4", "<i8", "<u8", "<f2", "<f4", "<f8"]


def same(first, second):
    """Equal in type and in every bit."""
    assert type(first) is type(second)
    if isinstance(first, dict):
        assert list(first) == list(second)
        assert [type(key) for key in first] == [type(key) for key in second]
        for key in first:
            same(first[key], second[key])
    elif isinstance(first, list | tuple):
        assert len(first) == len(second)
        for one, two in zip(first, second, strict=True):
            same(one, two)
    elif isinstance(first, torch.Tensor):
        assert (first.dtype, first.shape) == (second.dtype, second.shape)
        same(first.contiguous().reshape(-1).view(torch.uint8).numpy(), second.reshape(-1).view(torch.uint8).numpy())
    elif isinstance(first, np.ndarray | np.generic):
        assert (first.dtype, first.shape) == (second.dtype, second.shape)
        assert first.tobytes() == second.tobytes()
    elif isinstance(first, float):
        assert math.isnan(first) == math.isnan(second)
        assert math.isnan(first) or first.hex() == second.hex()
    else:
        assert first == second


def tensors():
    def make(dtype, shape, seed):
        generator = torch.Generator().manual_seed(seed)
        items = torch.randint(0, 2 if dtype == torch.bool else 256, (*shape, dtype.itemsize), generator=generator)
        return items.to(torch.uint8).reshape(-1).view(dtype).reshape(shape)

    return st.builds(
        make, st.sampled_from(TORCH_DTYPES), hnp.array_shapes(min_dims=0, min_side=0, max_side=3), st.integers(0, 99)
    )


plain = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(), max_size=8))
arrays = hnp.arrays(
    st.sampled_from(NUMPY_DTYPES).map(np.dtype), hnp.array_shapes(min_dims=0, min_side=0, max_side=3), fill=st.nothing()
)
keys = st.one_of(st.text(max_size=5), st.integers())
states = st.recursive(
    st.one_of(plain, tensors(), arrays),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(inner, max_size=3).map(tuple), st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(states, st.booleans())
def test_round_trip(state, copy):
    same(decode_state(encode_state(state, copy=copy)), state)


@pytest.mark.parametrize(
    "value",
    [
        10**5000,
        -(10**5000),
        2**63,
        2**63 - 1,
        -(2**63),
        -0.0,
        5e-324,
        math.inf,
        -math.inf,
        math.nan,
        "\ud800 lone",
        "\x00",
        np.float32(0.1),
        np.bool_(True),
        np.int64(-1),
        np.zeros((0, 3), dtype=np.float16),
        torch.zeros(0, 2, dtype=torch.bfloat16),
        torch.tensor(1.5),
        {},
        [],
        (),
        {"a": {"b": np.ones(1)}, "a.b": np.zeros(1), "a.b#2": np.zeros(2)},
        {1: "int", "1": "text"},
        {10**5000: np.ones(1)},
        {"torch": "looks like a reference", "dict": {"int": "0x1"}},
    ],
    ids=lambda value: type(value).__name__,
)
def test_round_trip_of_the_odd(value):
    same(decode_state(encode_state(value)), value)


def test_random_state_of_numpy_torch_and_python_survives():
    import random

    state = {
        "numpy": np.random.PCG64(3).state,
        "mt": np.random.MT19937(3).state,
        "python": random.Random(3).getstate(),
        "torch": torch.Generator().manual_seed(3).get_state(),
    }
    same(decode_state(encode_state(state)), state)


def test_optimizer_state_goes_on_exactly():
    def run(model, optimizer, steps):
        for step in range(steps):
            optimizer.zero_grad()
            model(torch.full((4, 3), float(step + 1))).square().mean().backward()
            optimizer.step()

    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, amsgrad=True)
    run(model, optimizer, 3)
    state = decode_state(encode_state({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, copy=True))
    run(model, optimizer, 3)
    twin = torch.nn.Linear(3, 2)
    twin_optimizer = torch.optim.Adam(twin.parameters())
    twin.load_state_dict(state["model"])
    twin_optimizer.load_state_dict(state["optimizer"])
    run(twin, twin_optimizer, 3)
    same(dict(twin.state_dict()), dict(model.state_dict()))


def test_layout_in_memory_does_not_matter():
    array = np.arange(12.0).reshape(3, 4)
    tensor = torch.arange(12.0).reshape(3, 4)
    back = decode_state(encode_state({"fortran": array.T, "steps": array[::2, ::-1], "view": tensor.T[1:, ::2]}))
    same(back["fortran"], array.T.copy())
    same(back["steps"], array[::2, ::-1].copy())
    same(back["view"], tensor.T[1:, ::2].contiguous())


def test_parameters_and_ordered_dicts_become_plain():
    back = decode_state(encode_state(OrderedDict(weight=torch.nn.Parameter(torch.ones(2)))))
    same(back, {"weight": torch.ones(2)})
    assert not back["weight"].requires_grad
    assert type(decode_state(encode_state(np.str_("adam")))) is str


def test_a_copy_does_not_follow_the_state():
    state = {"tensor": torch.zeros(3), "array": np.zeros(3), "scalar": torch.tensor(0.0)}
    copied, shared = encode_state(state, copy=True), encode_state(state)
    for value in state.values():
        value += 1
    same(decode_state(copied), {"tensor": torch.zeros(3), "array": np.zeros(3), "scalar": torch.tensor(0.0)})
    same(decode_state(shared), state)


def test_names_are_readable_paths():
    encoded = encode_state(
        {"model": {"emb": {"weight": torch.ones(1)}}, "optimizer": {"state": {0: {"exp": np.ones(1)}}}}
    )
    assert list(encoded.arrays) == ["model.emb.weight", "optimizer.state.0.exp"]


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": [1, {2}]}, r"cannot hold a builtins.set; state\['a'\]\[1\] is one"),
        ({"a": b"bytes"}, "cannot hold a builtins.bytes"),
        ({"a": Pair(1, 2)}, "cannot hold a .*Pair"),
        ({"a": 1j}, "cannot hold a builtins.complex"),
        ({"a": np.array([object()])}, "arrays of dtype object"),
        ({"a": np.array(["ä"])}, "arrays of dtype <U1"),
        ({"a": np.datetime64("2024-01-01", "ns")}, "arrays of dtype datetime64"),
        ({"a": np.zeros(1, dtype=">f8")}, "arrays of dtype >f8"),
        ({"a": np.zeros(1, dtype=[("x", "f4")])}, r"arrays of dtype \[\('x'"),
        ({"a": np.ma.masked_array([1.0], [True])}, "cannot hold a numpy.ma.*MaskedArray"),
        ({"a": torch.zeros(1, dtype=torch.complex64)}, r"state\['a'\] is a torch.complex64 tensor"),
        ({"a": torch.zeros(2, 2).to_sparse()}, "torch.sparse_coo"),
        ({"a": torch.zeros(1, device="meta")}, "on meta"),
        ({(1, 2): 3}, r"keys must be str or int; state has the key \(1, 2\)"),
        ({True: 3}, "keys must be str or int"),
    ],
)
def test_what_cannot_be_held_is_refused_with_its_place(state, message):
    with pytest.raises(StateError, match=message):
        encode_state(state)


def test_a_state_that_holds_itself_is_refused():
    state = {}
    state["again"] = [state]
    with pytest.raises(StateError, match=f"nested at most {MAX_DEPTH} deep"):
        encode_state(state)


ARRAYS = {
    "x": StoredArray("F32", (2,), np.zeros(8, dtype=np.uint8)),
    "b": StoredArray("BF16", (1,), np.zeros(2, dtype=np.uint8)),
}


@pytest.mark.parametrize(
    "structure",
    [
        {"pickle": "x"},
        {},
        {"torch": "missing"},
        {"torch": "x", "extra": 1},
        {"torch": 7},
        {"numpy": "b"},
        {"numpy": "x", "dtype": "<f8"},
        {"scalar": "x", "shape": [1]},
        {"int": "12"},
        {"int": "0xg"},
        {"float": "1.5"},
        {"dict": [1]},
        {"dict": {}, "tuple": []},
        {"items": [[1]]},
        {"items": [[[1], 2]]},
        {"items": [[None, 2]]},
        {"tuple": {"dict": {}}},
    ],
    ids=str,
)
def test_a_structure_made_by_others_is_refused_not_guessed_at(structure):
    with pytest.raises(StateError, match="its structure"):
        decode_state(EncodedState(json.dumps(structure), ARRAYS))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "JSON is broken"),
        ("{", "JSON is broken"),
        ("NaN", "NaN is not JSON"),
        ("1" * 5000, "JSON is broken"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ("[" * 3000 + "]" * 3000, "nested too deeply"),
    ],
    ids=["empty", "open", "nan", "digits", "deep", "less deep"],
)
def test_broken_json_is_a_reason(text, message):
    with pytest.raises(StateError, match=message):
        decode_state(EncodedState(text, {}))


def test_an_absurd_shape_is_a_reason():
    empty = StoredArray("F32", (0, 10**30), np.empty(0, dtype=np.uint8))
    for word in ("torch", "numpy"):
        with pytest.raises(StateError, match="cannot be made"):
            decode_state(EncodedState(json.dumps({word: "x"}), {"x": empty}))
