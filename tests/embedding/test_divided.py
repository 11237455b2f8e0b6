"""A table in parts; what several processes do with it is in tests/training/processes/test_tables.py."""

import pytest
import torch

from daes.embedding import CategoricalEmbedding, DividedEmbedding

SIZES = {"city": 50, "device": 7}
IDS = torch.tensor([[7, 0], [107, 3], [9, 1]])


@pytest.fixture
def of_process(monkeypatch):
    """Make the table that process `rank` of `count` has; no process is told anything."""

    def make(rank, count, sizes, dim):
        monkeypatch.setattr("daes.embedding.divided.num_processes", lambda: count)
        monkeypatch.setattr("torch.distributed.get_rank", lambda: rank)
        torch.manual_seed(1)
        return DividedEmbedding(sizes, dim)

    return make


@pytest.mark.parametrize(("rows", "dim"), [(1, 1), (5, 3), (61, 4), (140_003, 3), (300_007, 1)])
def test_the_parts_are_those_of_one_table(of_process, rows, dim):
    torch.manual_seed(1)
    whole = CategoricalEmbedding([rows], dim)
    for count in (2, 3):
        parts = [of_process(rank, count, [rows], dim) for rank in range(count)]
        assert torch.equal(torch.cat([part.weight for part in parts]), whole.weight)
        assert max(len(part.weight) for part in parts) == parts[0].rows_each == -(-(rows + 2) // count)
        assert all(part.elsewhere == whole.weight.numel() - part.weight.numel() for part in parts)
        for rank, part in enumerate(parts):
            own = torch.arange(part.first_row, part.first_row + len(part.weight))
            assert (part.owners(own) == rank).all()


@pytest.mark.parametrize("sparse", [True, False])
def test_look_up_and_gradient(sparse):
    torch.manual_seed(0)
    plain = CategoricalEmbedding(SIZES, 4, sparse=sparse)
    torch.manual_seed(0)
    table = DividedEmbedding(SIZES, 4, sparse=sparse)
    assert table.gradient()[0].numel() == 0
    table.fetch(IDS)
    assert torch.equal(table(IDS), plain(IDS))
    assert torch.equal(table(IDS[1:]), plain(IDS[1:]))
    for one in (table, plain):
        one(IDS).square().sum().backward()
    rows, values = table.gradient()
    expected = plain.weight.grad.to_dense() if sparse else plain.weight.grad
    assert rows.tolist() == expected.any(1).nonzero()[:, 0].tolist()
    assert torch.equal(values, expected[rows])
    assert table.weight.grad is None
    table.fetch(IDS[:0])
    assert table(IDS[:0]).shape == (0, 2, 4)
    for ids in (IDS, IDS[:1]):
        with pytest.raises(RuntimeError, match="can only look up ids that were passed to the last fetch"):
            table(ids)


def test_a_whole_table_of_it():
    table = DividedEmbedding(SIZES, 4, mode="vocabulary", min_count=2, strict=True).eval()
    weight = torch.randn(table.num_rows, 4)
    made = table.with_rows(weight)
    assert type(made) is CategoricalEmbedding
    assert not made.training
    assert made.options == table.options
    assert made.vocabulary is table.vocabulary
    assert made.weight.data_ptr() == weight.data_ptr()
    with pytest.raises(ValueError, match=r"weight must have shape \(61, 4\), got \(60, 4\)"):
        table.with_rows(weight[1:])
