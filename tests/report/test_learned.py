import numpy as np
import pytest
import torch

from daes.model import CTRModel
from daes.report.learned import (
    LEVELS,
    MOST_RESPONSES,
    evaluate_contexts,
    evaluate_features,
    principal_coordinates,
    principal_direction,
    quantile_grid,
    read_findings,
)
from daes.report.run_record import KnotPaths, RunRecord
from daes.simulation import AdStream
from daes.stream.batch import Batch
from daes.stream.schema import Schema


def trained(method: str, rows: int = 2000, **options: object) -> CTRModel:
    stream = AdStream(rows, seed=0)
    torch.manual_seed(0)
    model = CTRModel(stream.schema, method, "fnn", sizes=50, embedding_options=options)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for batch in stream.iter_batches(stream.schema, 500):
        optimizer.zero_grad()
        model.loss(batch).backward()
        optimizer.step()
    return model.eval()


def test_the_grid_is_read_off_the_methods_own_knots():
    model = trained("daes-gate")
    grid = quantile_grid(model, RunRecord("a run"))
    knots = model.numerical.knots.double().numpy()
    assert grid.shape == (10, len(LEVELS))
    np.testing.assert_allclose(grid[:, ::4], knots)
    np.testing.assert_allclose(grid[:, 2], (knots[:, 0] + knots[:, 1]) / 2)


def test_without_knots_the_grid_is_read_off_the_runs_quantiles():
    model = trained("fe")
    assert quantile_grid(model, RunRecord("a run")) is None
    values = np.arange(30.0).reshape(1, 10, 3)
    run = RunRecord(
        "a run", quantiles=KnotPaths(model.schema.numerical, np.array([2000.0]), np.array([0.0, 0.5, 1.0]), values)
    )
    grid = quantile_grid(model, run)
    np.testing.assert_allclose(grid[3, [0, 10, 20, 40]], [9.0, 9.5, 10.0, 11.0])


@pytest.mark.parametrize("method", ["daes", "daes-gate"])
def test_embedding_and_response_are_the_models_own(method):
    model = trained(method)
    grid = quantile_grid(model, RunRecord("a run"))
    learned = evaluate_features(model, grid)
    assert learned.seen.all()
    for place in (0, 13, 40):
        row = torch.from_numpy(grid[:, place]).float().unsqueeze(0)
        with torch.no_grad():
            expected = model.numerical(row)[0]
        np.testing.assert_allclose(learned.embedding[:, place], expected, rtol=1e-5, atol=1e-7)
    median = grid[:, len(LEVELS) // 2].astype(np.float32)
    unknown = np.zeros((1, 20), dtype=np.int64)
    for feature, place in ((0, 0), (4, 40), (9, 17)):
        row = median.copy()
        row[feature] = grid[feature, place]
        expected = model.predict_proba(Batch(row[None], unknown, None))[0]
        assert learned.response[feature, place] == pytest.approx(expected, abs=1e-6)
        row[feature] = np.nan
        expected = model.predict_proba(Batch(row[None], unknown, None))[0]
        assert learned.missing_response[feature] == pytest.approx(expected, abs=1e-6)


def test_looking_changes_nothing():
    model = trained("daes")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    evaluate_features(model, quantile_grid(model, RunRecord("a run")))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_a_feature_that_was_never_seen_is_left_out():
    model = CTRModel(Schema("click", ("seen", "void"), ()), "daes", "fnn").train()
    model(torch.tensor([[1.0, torch.nan], [2.0, torch.nan]]), torch.empty(2, 0, dtype=torch.int64))
    learned = evaluate_features(model, quantile_grid(model, RunRecord("a run")))
    assert learned.seen.tolist() == [True, False]
    assert np.isfinite(learned.response[0]).all()


@pytest.mark.parametrize(("method", "per_feature"), [("dlrm", False), ("youtube", False), ("autodis", True)])
def test_methods_without_a_vector_a_feature(method, per_feature):
    model = trained(method)
    grid = np.tile(np.linspace(1, 2, len(LEVELS)), (10, 1))
    learned = evaluate_features(model, grid)
    assert (learned.embedding is not None) == per_feature
    assert learned.response.shape == (10, len(LEVELS))


@pytest.mark.parametrize("method", ["daes-gate", "daes-tran"])
def test_contexts_shift_the_encoding_as_the_formula_says(method):
    model = trained(method)
    grid = quantile_grid(model, RunRecord("a run"))
    found = evaluate_contexts(model, grid)
    assert len(found.labels) == 24
    assert found.labels[0].startswith(model.context[0])
    np.testing.assert_allclose(found.shift.sum(axis=1), 0.0, atol=1e-5)
    assert (found.reach > 0).all()
    # The first context by hand: the field's first kept row beside the means of the other fields' kept rows.
    table, kept = model.categorical, []
    for name in model.context:
        field = table.names.index(name)
        start = int(table._offsets[field])
        rows = table.weight[start : start + 2 + table.sizes[field]].detach()
        kept.append(rows[rows.norm(dim=1).argsort(descending=True)[:8].sort().values])
    vectors = torch.stack([rows.mean(0) for rows in kept])
    encoded = []
    for field, rows in enumerate(kept):
        for row in rows:
            changed = vectors.clone()
            changed[field] = row
            with torch.no_grad():
                context = changed.mean(0, keepdim=True).expand(len(LEVELS), -1)
                encoded.append(model.numerical(torch.from_numpy(grid.T).float(), context)[:, 2].double().numpy())
    mean = np.mean(encoded, axis=0)
    expected = (encoded[5] - mean) @ principal_direction(mean)
    np.testing.assert_allclose(found.shift[2, 5], expected, atol=1e-6)


def test_no_contexts_without_modulation():
    model = trained("daes")
    assert evaluate_contexts(model, quantile_grid(model, RunRecord("a run"))) is None
    alone = CTRModel(Schema("click", ("price",), ()), "daes-gate", "fnn")
    assert evaluate_contexts(alone, np.zeros((1, len(LEVELS)))) is None


def test_the_principal_direction_is_that_of_the_largest_eigenvalue():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(41, 5)) * [1, 3, 0.5, 2, 1]
    values, columns = np.linalg.eigh(np.cov(vectors.T))
    direction = principal_direction(vectors)
    assert abs(direction @ columns[:, -1]) == pytest.approx(1.0)
    assert (vectors[-1] - vectors[0]) @ direction > 0
    coordinates, carried = principal_coordinates(vectors[None])
    assert carried[0] == pytest.approx(values[-1] / values.sum())
    np.testing.assert_allclose(coordinates[0], (vectors - vectors.mean(0)) @ direction)


def test_vectors_that_do_not_vary_have_no_direction():
    assert not principal_direction(np.ones((4, 3))).any()
    assert not principal_direction(np.full((4, 3), np.nan)).any()
    coordinates, carried = principal_coordinates(np.ones((1, 4, 3)))
    assert not coordinates.any()
    assert carried.tolist() == [0.0]


def test_what_cannot_be_looked_at_is_said(tmp_path):
    assert read_findings(tmp_path / "none", RunRecord("a run")).reason == "The model is not in the folder."
    CTRModel(Schema("click", (), ("city",)), "daes", "fnn").save_pretrained(tmp_path / "categories")
    assert read_findings(tmp_path / "categories", RunRecord("a run")).reason == "There is no numerical feature."
    CTRModel(Schema("click", ("price",), ()), "fe", "fnn").save_pretrained(tmp_path / "fe")
    assert read_findings(tmp_path / "fe", RunRecord("a run")).reason.startswith("Neither the method nor the run")


def test_memory_grows_linearly_with_the_columns():
    columns = 500
    model = CTRModel(Schema("click", tuple(f"c{place}" for place in range(columns)), ()), "daes", "lr", dim=2)
    cells = []
    model.register_forward_hook(lambda _module, inputs, _output: cells.append(inputs[0].numel()))
    values = np.tile(np.linspace(0, 1, len(LEVELS)), (columns, 1))
    learned = evaluate_features(model, values)
    assert max(cells) <= (len(LEVELS) + 1) * columns
    assert len(cells) == MOST_RESPONSES < columns
    # The rest has an embedding and no response.
    assert np.isfinite(learned.response).all(axis=1).sum() == MOST_RESPONSES
    assert learned.embedding.shape == (columns, len(LEVELS), 2)
