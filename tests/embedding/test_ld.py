"""LD against a dictionary of ids."""

from collections import Counter
from math import floor, isfinite, log

import pytest
import torch
from safetensors.torch import load, save

from daes.embedding.ld import LD

Id = tuple[str, float]


def id_of(value: float) -> Id:
    return ("log", floor(log(value) ** 2)) if value > 2 else ("value", value)


def nearest_known(wanted: Id, known: list[Id]) -> Id:
    """The nearest of the same kind, the lower of two; of the other kind the one next to this kind."""
    same = sorted(number for kind, number in known if kind == wanted[0])
    if same:
        return (wanted[0], min(same, key=lambda number: abs(number - wanted[1])))
    other = sorted(number for _, number in known)
    return ("log", other[0]) if wanted[0] == "value" else ("value", other[-1])


def rows_one_by_one(column: list[float], values: list[float]) -> list[int]:
    known = sorted({id_of(value) for value in column if isfinite(value)}, key=lambda i: (i[0] == "log", i[1]))
    return [known.index(nearest_known(id_of(value), known)) for value in values]


COLUMNS = {
    "counts": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 20.0, 22.0, 150.0, 1e4, 2e6, float("nan"), float("inf")],
    "gaps": [-3.0, -1.0, 2.0, 3.0, 7e4],
    "small only": [-2.5, 0.1, 0.2, 1.5],
    "large only": [2.5, 90.0, 91.0, 1e9],
    "one": [5.0],
}


@pytest.mark.parametrize("name", COLUMNS)
def test_equals_a_dictionary_of_ids(name: str) -> None:
    torch.manual_seed(0)
    data = torch.tensor(COLUMNS[name]).unsqueeze(1)
    method = LD(1, 3).fit(data)
    probes = torch.cat([torch.arange(-5.0, 300.0, 0.25), torch.rand(200) * 1e6, torch.tensor([3.4e38, -3.4e38, 2.0])])
    rows = rows_one_by_one(data.flatten().tolist(), probes.tolist())
    assert torch.equal(method(probes.unsqueeze(1))[:, 0], method.table[0, rows])


def test_the_two_kinds_of_id_never_collide() -> None:
    data = torch.tensor([[0.0], [1.0], [2.0], [2.5], [3.0], [4.2]])  # ids 0, 1, 2 and, of logarithms, 0, 1, 2
    assert LD(1).fit(data).index(data).flatten().tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_neighbouring_floats_keep_their_own_rows(dtype: torch.dtype) -> None:
    data = [torch.tensor(1.0, dtype=dtype)]
    for _ in range(4):
        data.append(torch.nextafter(data[-1], torch.tensor(2.0, dtype=dtype)))
    values = torch.stack(data).unsqueeze(1)
    assert LD(1).to(dtype).fit(values).index(values).flatten().tolist() == [0, 1, 2, 3, 4]


def test_the_most_frequent_ids_are_known() -> None:
    column = [0.0] * 5 + [1.0] * 1 + [2.0] * 3 + [100.0] * 4 + [5000.0] * 2
    method = LD(1, max_ids=3).fit(torch.tensor(column).unsqueeze(1))
    kept = sorted(id_of(value) for value, _ in Counter(column).most_common(3))
    assert kept == [("log", 21), ("value", 0.0), ("value", 2.0)]
    assert method.index(torch.tensor([[0.9], [1.0], [1.1], [100.0], [5000.0]])).flatten().tolist() == [0, 0, 1, 2, 2]


def test_a_column_never_seen_has_one_row() -> None:
    method = LD(1).fit(torch.tensor([[torch.nan]]))
    assert method.index(torch.tensor([[-5.0], [1e30]])).flatten().tolist() == [0, 0]


def test_a_fresh_module_loads_the_vocabulary_strictly() -> None:
    torch.manual_seed(0)
    values = torch.randn(100, 2).exp() * 3
    method = LD(2, 4).fit(values)
    fresh = LD(2, 4)
    fresh.load_state_dict(load(save(method.state_dict())), strict=True)
    assert torch.equal(fresh(values), method(values))
