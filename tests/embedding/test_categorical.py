import copy
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from daes.checking import seeded
from daes.embedding.categorical import CategoricalEmbedding, suggest_sizes

SIZES = {"city": 7, "device": 1, "user": 1000}
MODES = ["hash", "vocabulary"]


def make(mode: str = "hash", seed: int = 0, **options: Any) -> CategoricalEmbedding:
    with seeded(seed):
        return CategoricalEmbedding(SIZES, 4, mode=mode, **{"min_count": 2, "counters": 2**12, **options})  # type: ignore[arg-type]


def random_ids(rows: int, seed: int = 0, distinct: int = 300) -> Tensor:
    generator = np.random.default_rng(seed)
    hashes = generator.integers(1, 2**63 - 1, (distinct, 3))
    ids = np.take_along_axis(hashes, generator.integers(0, distinct, (rows, 3)), axis=0)
    ids[generator.random((rows, 3)) < 0.1] = 0
    return torch.from_numpy(ids)


def same_state(one: nn.Module, other: nn.Module) -> bool:
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


class TestRows:
    def test_hash_by_hand(self) -> None:
        embedding = make()
        ids = torch.tensor([[0, 0, 0], [1, 1, 1], [7, 2, 1000], [2**63 - 1, 2**63 - 1, 2**63 - 1]])
        expected = [
            [
                offset + (0 if key == 0 else 2 + key % size)
                for key, size, offset in zip(row, (7, 1, 1000), (0, 9, 12), strict=True)
            ]
            for row in ids.tolist()
        ]
        assert embedding.rows(ids).tolist() == expected
        assert torch.equal(embedding(ids), embedding.weight[torch.tensor(expected)])
        assert embedding.weight.shape == (9 + 3 + 1002, 4)

    @given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=10))
    def test_rows_stay_within_their_field(self, keys: list[int]) -> None:
        ids = torch.tensor(keys)[:, None].expand(-1, 3)
        for embedding in (make(), make("vocabulary", min_count=1)):
            embedding(ids)
            rows = embedding.rows(ids)
            assert ((rows >= torch.tensor([0, 9, 12])) & (rows < torch.tensor([9, 12, 1014]))).all()

    def test_vocabulary_by_hand(self) -> None:
        embedding = make("vocabulary")
        ids = torch.tensor([[5, 8, 0], [6, 8, 6], [5, 9, 6], [5, 9, 7]])
        embedding(ids)
        # city: 5 seen twice; device: 8 took its only row; user: 6 seen twice.
        assert embedding.rows(ids).tolist() == [[2, 11, 12], [1, 11, 14], [2, 10, 14], [2, 10, 13]]
        assert embedding.vocabulary is not None
        assert embedding.vocabulary.overflow.tolist() == [0, 1, 0]

    def test_fields_do_not_share_ids(self) -> None:
        embedding = make("vocabulary", min_count=1)
        embedding(torch.tensor([[5, 0, 0]]))
        assert embedding.rows(torch.tensor([[5, 5, 5]])).tolist() == [[2, 10, 13]]


class TestModes:
    def test_sizes_in_any_form(self) -> None:
        assert CategoricalEmbedding([4, 2], 2).sizes == (4, 2)
        assert CategoricalEmbedding({"a": 4}, 2).names == ("a",)

    @pytest.mark.parametrize("mode", MODES)
    def test_no_fields_and_no_rows(self, mode: str) -> None:
        nothing = CategoricalEmbedding([], 4, mode=mode)  # type: ignore[arg-type]
        assert nothing(torch.zeros(5, 0, dtype=torch.int64)).shape == (5, 0, 4)
        assert make(mode)(torch.zeros(0, 3, dtype=torch.int64)).shape == (0, 3, 4)

    @pytest.mark.parametrize("mode", MODES)
    def test_eval_changes_nothing(self, mode: str) -> None:
        embedding = make(mode)
        embedding(random_ids(100))
        before = copy.deepcopy(embedding)
        embedding.eval()(random_ids(100, seed=1))
        assert same_state(embedding, before)

    def test_a_vocabulary_can_be_fixed_in_training(self) -> None:
        embedding = make("vocabulary")
        embedding(random_ids(100))
        before = copy.deepcopy(embedding)
        assert embedding.vocabulary is not None
        embedding.train()
        embedding.vocabulary.eval()
        embedding(random_ids(100, seed=1))
        assert same_state(embedding, before)

    def test_training_observes_before_it_looks_up(self) -> None:
        embedding = make("vocabulary", min_count=1)
        ids = random_ids(50)
        assert torch.equal(embedding(ids), embedding.eval()(ids))

    def test_strict(self) -> None:
        embedding = make("vocabulary", strict=True)
        known = torch.tensor([[5, 6, 7], [5, 6, 7], [0, 0, 0]])
        embedding(known)
        embedding.eval()
        assert embedding(known).shape == (3, 3, 4)
        with pytest.raises(ValueError, match=r"unseen ids in city \(2\), user \(1\)"):
            embedding(torch.tensor([[8, 6, 9], [9, 6, 9], [8, 6, 7]]))
        embedding.train()(torch.tensor([[8, 6, 9]]))

    def test_lenient_takes_the_unseen_row(self) -> None:
        embedding = make("vocabulary").eval()
        assert torch.equal(embedding(torch.tensor([[8, 6, 9]]))[0], embedding.weight[[1, 10, 13]])

    @pytest.mark.parametrize("mode", MODES)
    def test_input_is_left_alone(self, mode: str) -> None:
        ids = random_ids(20)
        before = ids.clone()
        make(mode)(ids)
        assert torch.equal(ids, before)


class TestGradients:
    @pytest.mark.parametrize("mode", MODES)
    def test_gradients_are_sums_over_the_rows_used(self, mode: str) -> None:
        ids, upstream = random_ids(60), torch.randn(60, 3, 4, generator=torch.Generator().manual_seed(1))
        embedding = make(mode)
        embedding(ids).backward(upstream)
        expected = torch.zeros_like(embedding.weight)
        for sample, fields in enumerate(embedding.rows(ids).tolist()):
            for field, row in enumerate(fields):
                expected[row] += upstream[sample, field]
        torch.testing.assert_close(embedding.weight.grad, expected)

    @pytest.mark.parametrize("mode", MODES)
    def test_sparse_gradients_are_the_same(self, mode: str) -> None:
        dense, sparse = make(mode), make(mode, sparse=True)
        ids = random_ids(60)
        for embedding in (dense, sparse):
            embedding(ids).square().sum().backward()
        assert sparse.weight.grad is not None
        assert sparse.weight.grad.is_sparse
        assert dense.weight.grad is not None
        torch.testing.assert_close(sparse.weight.grad.to_dense(), dense.weight.grad)
        optimizer = torch.optim.SparseAdam(sparse.parameters(), lr=0.1)
        before = sparse.weight.detach().clone()
        optimizer.step()
        touched = (sparse.weight != before).any(dim=1).nonzero().squeeze(1)
        assert set(touched.tolist()) == set(sparse.rows(ids).reshape(-1).tolist())


class TestState:
    @pytest.mark.parametrize("mode", MODES)
    def test_round_trip_is_strict_and_exact(self, mode: str, tmp_path: Path) -> None:
        trained, loaded = make(mode), make(mode, seed=9)
        trained(random_ids(500))
        save_file(trained.state_dict(), tmp_path / "state.safetensors")
        loaded.load_state_dict(load_file(tmp_path / "state.safetensors"), strict=True)
        assert same_state(trained, loaded)
        more = random_ids(500, seed=5)
        assert torch.equal(trained(more), loaded(more))
        assert same_state(trained, loaded)

    @pytest.mark.parametrize("mode", MODES)
    def test_copies(self, mode: str) -> None:
        embedding = make(mode)
        ids = random_ids(100)
        embedding(ids)
        stream = io.BytesIO(pickle.dumps(embedding))
        for twin in (copy.deepcopy(embedding), pickle.load(stream)):
            assert same_state(twin, embedding)
            assert torch.equal(twin.eval()(ids), copy.deepcopy(embedding).eval()(ids))

    @pytest.mark.parametrize("mode", MODES)
    def test_dtype(self, mode: str) -> None:
        embedding = make(mode).double()
        assert embedding(random_ids(10)).dtype == torch.float64
        assert make(mode).to(torch.bfloat16)(random_ids(10)).dtype == torch.bfloat16

    def test_start(self) -> None:
        with seeded(0):
            embedding = CategoricalEmbedding([50_000], 4, init_std=0.3)
        weight = embedding.weight.detach()
        # 200 000 normal draws: the standard error of their deviation is 0.3 / √400 000.
        assert abs(weight.std().item() - 0.3) < 5 * 0.3 / 400_000**0.5
        assert abs(weight.mean().item()) < 5 * 0.3 / 200_000**0.5
        assert torch.equal(make().weight, make().weight)
        assert not torch.equal(make().weight, make(seed=1).weight)


class TestExport:
    @pytest.mark.parametrize("mode", MODES)
    def test_onnx_and_torch_export(self, mode: str, tmp_path: Path) -> None:
        embedding = make(mode)
        ids = random_ids(400)
        embedding(ids)
        embedding.eval()
        edges = torch.tensor([[2**63 - 1] * 3, [0, 0, 0], [1, 1, 1]])
        probe = torch.cat([ids, random_ids(30, seed=1), edges])
        expected = embedding(probe).detach()
        embedding.strict = mode == "vocabulary"  # an exported model cannot raise, and must not stand in the way
        shapes = ({0: torch.export.Dim("batch", min=1)},)
        program = torch.export.export(embedding, (ids,), dynamic_shapes=shapes)
        path = str(tmp_path / "embedding.onnx")
        torch.onnx.export(embedding, (ids,), path, dynamo=True, dynamic_shapes=shapes, verbose=False)
        session = onnxruntime.InferenceSession(path)
        for rows in (len(probe), 1):
            assert torch.equal(program.module()(probe[:rows]), expected[:rows])
            (output,) = session.run(None, {session.get_inputs()[0].name: probe[:rows].numpy()})
            np.testing.assert_array_equal(output, expected[:rows])

    @pytest.mark.parametrize("mode", MODES)
    def test_compile(self, mode: str) -> None:
        plain, compiled = make(mode), make(mode)
        run = torch.compile(compiled, backend="eager")
        for seed in range(3):
            ids = random_ids(50 + seed, seed=seed)
            assert torch.equal(run(ids), plain(ids))
        assert same_state(plain, compiled)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("mode", MODES)
def test_cuda_learns_the_same(mode: str) -> None:
    here, there = make(mode), make(mode).cuda()
    for seed in range(3):
        ids = random_ids(500, seed=seed)
        assert torch.equal(there(ids.cuda()).cpu(), here(ids))
    assert same_state(here, there.cpu())


class TestErrors:
    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize(
        "ids", [torch.zeros(2, 3), torch.zeros(2, 2, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)]
    )
    def test_ids(self, mode: str, ids: Tensor) -> None:
        with pytest.raises(ValueError, match=r"ids must be int64 of shape \(B, 3\), got torch\."):
            make(mode)(ids)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"sizes": {"city": 0}}, "city has size 0"),
            ({"sizes": [3, 2.5]}, "field 1 has size 2.5"),
            ({"sizes": [-1]}, "field 0 has size -1"),
            ({"sizes": [3], "dim": 0}, r"dim must .*got 0"),
            ({"sizes": [3], "mode": "hashing"}, r"mode must .*got 'hashing'"),
            ({"sizes": [3], "strict": True}, 'strict needs mode="vocabulary"'),
            ({"sizes": [3], "init_std": -1.0}, r"init_std must .*got -1.0"),
            ({"sizes": [3], "init_std": float("nan")}, r"init_std must .*got nan"),
            ({"sizes": [3], "mode": "vocabulary", "min_count": 0}, r"min_count must .*got 0"),
        ],
    )
    def test_arguments(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            CategoricalEmbedding(**{"dim": 4, **arguments})

    def test_loading_other_sizes(self) -> None:
        with pytest.raises(RuntimeError, match="size mismatch for weight"):
            CategoricalEmbedding([3], 4).load_state_dict(CategoricalEmbedding([4], 4).state_dict())


class TestSuggestSizes:
    @given(st.integers(1, 5000), st.floats(0.01, 0.9))
    def test_collisions_are_as_asked_and_no_smaller_size_does(self, cardinality: int, collisions: float) -> None:
        size = suggest_sizes({"f": cardinality}, growth=1.0, collisions=collisions, maximum=10**9)["f"]

        def shared(rows: int) -> float:
            return 1 - (1 - 1 / rows) ** (cardinality - 1)

        assert shared(size) <= collisions * (1 + 1e-9)
        assert size == 1 or shared(size - 1) > collisions * (1 - 1e-9)

    def test_collisions_of_real_tables(self) -> None:
        """Share of ids that hash into a shared row, 20 000 ids: 0.2 ± 0.01."""
        size = suggest_sizes({"f": 20_000}, growth=1.0)["f"]
        rows = np.random.default_rng(0).integers(0, 2**63 - 1, 20_000) % size
        counts = np.bincount(rows, minlength=size)
        assert abs((counts[rows] > 1).mean() - 0.2) < 0.01

    def test_bounds(self) -> None:
        assert suggest_sizes({"a": 0, "b": 1, "c": 10**9}) == {"a": 1, "b": 5, "c": 1_000_000}
        assert suggest_sizes({"a": 3, "b": 10**9}, mode="vocabulary", maximum=100) == {"a": 6, "b": 100}
        for options in ({"growth": 0.0}, {"collisions": 1.0}, {"collisions": 0.0}, {"maximum": 0}, {"mode": "x"}):
            with pytest.raises(ValueError, match=next(iter(options))):
                suggest_sizes({"a": 1}, **options)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="a has -1"):
            suggest_sizes({"a": -1})
