"""A frozen scorer against the model it was made of: rows, tables, bad values, threads and compiled code."""

import math
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
import torch

from daes.model import CTRModel
from daes.serving.compiled import CompiledScores, compiler
from daes.serving.rows import RowError
from daes.serving.scorer import Scorer, probe_batch
from daes.stream.batch import batch_from_table
from daes.stream.schema import Schema

SCHEMA = Schema(None, ("price", "age"), ("city", "device"))


@pytest.fixture(scope="module")
def scorer(trained):
    return Scorer(CTRModel.from_pretrained(trained / "model"))


def as_table(rows):
    names = (*SCHEMA.numerical, *SCHEMA.categorical)
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})


def test_rows_and_tables_have_the_scores_of_the_model(trained, scorer, requests):
    table = as_table(requests[:40])
    expected = CTRModel.from_pretrained(trained / "model").predict_proba(batch_from_table(table, SCHEMA))
    np.testing.assert_array_equal(scorer.score_rows(requests[:40]), expected)
    np.testing.assert_array_equal(scorer.score_table(table), expected)
    np.testing.assert_array_equal(scorer.score_table(table.to_batches()[0]), expected)
    assert expected.std() > 0.05


def test_rows_of_any_kind_are_scored(scorer, requests):
    scores = scorer.score_rows(requests)
    assert scores.shape == (len(requests),)
    assert ((scores > 0) & (scores < 1)).all()
    assert scorer.score_rows([]).shape == (0,)


def test_a_column_that_is_left_out_is_missing(scorer):
    short, whole = [{"city": "city 3"}], [{"price": None, "age": math.nan, "city": "city 3", "device": ""}]
    assert scorer.score_rows(short) == scorer.score_rows(whole)
    assert scorer.score_table(pa.table({"city": ["city 3"]})) == scorer.score_rows(short)


def test_columns_of_training_are_accepted_and_others_are_named(scorer):
    row = {"price": 1.0, "city": "city 3"}
    assert scorer.score_rows([{**row, "click": 1}]) == scorer.score_rows([row])
    message = "row 1, 'prize': there is no column 'prize'; did you mean 'price'?"
    with pytest.raises(RowError, match=re.escape(message)):
        scorer.score_rows([row, {"prize": 1.0}])
    with pytest.raises(ValueError, match="there is no column 'prize'; did you mean 'price'"):
        scorer.score_table(pa.table({"prize": [1.0]}))
    with pytest.raises(RowError, match="must be an object with a value for each column, got list"):
        scorer.score_rows([row, [1.0]])


def test_what_was_missing_in_training_is_missing(trained, scorer):
    told = {"missing": ["", "NA", "-999", "unknown"], "missing_categories": ["", "-999", "unknown"]}
    aware = Scorer(CTRModel.from_pretrained(trained / "model"), **told)
    nothing, known = scorer.score_rows([{}]), {"price": 2.5, "city": "city 3", "device": "NA"}
    missing = [
        {"price": -999, "age": -999.0, "city": -999, "device": "unknown"},
        {"price": "unknown", "age": "-999", "city": "-999.0", "device": ""},
        {"price": "NA", "age": None},
    ]
    assert (aware.score_rows(missing) == nothing).all()
    assert scorer.score_rows(missing[:1]) != nothing
    assert aware.score_rows([known]) == scorer.score_rows([known])
    assert aware.score_table(pa.table({"price": [-999], "age": [-999.0], "city": ["unknown"]})) == nothing
    with pytest.raises(RowError, match="row 0, 'price': must be a number, got 'none'"):
        aware.score_rows([{"price": "none"}])


@pytest.mark.parametrize("schema", [Schema("click", ("price",), ()), Schema("click", (), ("city",))])
def test_schemas_of_one_kind(schema):
    scorer = Scorer(CTRModel(schema, backbone="fnn", dim=4, sizes=5, context=None))
    row = {"price": 2.0} if schema.numerical else {"city": "Bern"}
    assert scorer.score_rows([row, {}]).shape == (2,)
    assert scorer.score_rows([]).shape == (0,)


def test_threads_that_score_while_the_model_is_replaced(trained, scorer, requests):
    other = CTRModel.from_pretrained(trained / "model")
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(0.5)
    scorers = [scorer, Scorer(other)]
    expected = [one.score_rows(requests) for one in scorers]
    assert not np.array_equal(*expected)
    current = scorers[:1]

    def score(number):
        if number % 10 == 9:
            current[0] = scorers[number // 10 % 2]
        scores = current[0].score_rows(requests)
        return any(np.array_equal(scores, one) for one in expected)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(score, range(100)))


def test_probe_rows_are_varied(scorer):
    probe = probe_batch(scorer.model)
    assert 0 < np.isnan(probe.numerical).mean() < 0.5
    assert (probe.categorical == 0).any()
    assert scorer.score(probe).std() > 0.01


@pytest.mark.engines
@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
def test_compiled_code_scores_with_the_tensors_of_any_model_of_the_run(trained, scorer, requests, tmp_path):
    compiled = CompiledScores.compile(scorer.model, tmp_path / "scores.pt2")
    other = CTRModel.from_pretrained(trained / "model")
    with torch.no_grad():
        for tensor in (*other.parameters(), other.evidence.total, other.numerical.distributions.knots):
            tensor.mul_(0.7)
    for model in (scorer.model, other, scorer.model):
        fast, plain = Scorer(model, compiled=compiled), Scorer(model)
        assert fast.is_compiled
        for rows in (requests, requests[:1], []):
            np.testing.assert_allclose(fast.score_rows(rows), plain.score_rows(rows), rtol=1e-5)
    with pytest.raises(ValueError, match="compiled for another model: this one lacks"):
        Scorer(CTRModel(SCHEMA, "fe", "lr", dim=4, sizes=5), compiled=compiled)


def test_without_a_compiler(scorer, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(RuntimeError, match=r"a C\+\+ compiler is needed to compile a model"):
        CompiledScores.compile(scorer.model, tmp_path / "scores.pt2")
