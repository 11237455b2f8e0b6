from dataclasses import replace

import pytest
import torch

from daes.training.processes.checksum import model_checksum, rows_checksum


def test_checksum_sees_one_bit(make_model):
    model = make_model()
    before = model_checksum(model)
    assert model_checksum(make_model()) == before
    with torch.no_grad():
        model.categorical.weight[3, 1] = torch.nextafter(model.categorical.weight[3, 1], torch.tensor(9.0))
    after = model_checksum(model)
    assert [name for name in before if after[name] != before[name]] == ["categorical.weight"]


def test_turns_pass_through_a_large_tensor(make_model):
    model, changed = make_model(sizes=5000), make_model(sizes=5000)
    with torch.no_grad():
        changed.categorical.weight[-1, -1] += 1
    pieces = -(-model.categorical.weight.numel() // 16_384)
    differing = [turn for turn in range(pieces) if model_checksum(model, turn) != model_checksum(changed, turn)]
    assert pieces > 1
    assert differing == [pieces - 1]
    name = "categorical.weight"
    assert model_checksum(model, pieces)[name] == model_checksum(model, 0)[name]


@pytest.mark.parametrize("part", ["numerical", "categorical", "label"])
def test_rows_are_compared_at_places_that_reach_all_of_them(make_rows, part):
    rows = make_rows(1000)
    assert rows_checksum(rows) == rows_checksum(make_rows(1000)) != rows_checksum(rows[:-1])
    changed = getattr(rows, part).copy()
    changed[500:520] += 1
    assert rows_checksum(replace(rows, **{part: changed})) != rows_checksum(rows)
    assert rows_checksum(rows[:0]) == 0
