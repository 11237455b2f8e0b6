"""A method and a backbone from outside the package are found wherever names are taken or listed."""

import importlib
import json
import re
import textwrap
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from daes.backbone import BACKBONES, Backbone, build_backbone, register_backbone
from daes.backbone.checks import check_backbone
from daes.classifier import StreamingClassifier
from daes.cli.app import build_app
from daes.embedding import METHODS, NumericalEmbedding, build_embedding, register_method
from daes.embedding.checks import check_embedding
from daes.experiments.compare import compare
from daes.model import CTRModel
from daes.paper import overall_figure
from daes.paper.scores import backbone_title, method_title

GRAPHS = ("check_compile", "check_export", "check_onnx")  # which cost seconds, and are run on others


class Squash(NumericalEmbedding):
    """The squashed value times a vector.

    Args:
        steepness: how fast values are squashed.
    """

    def __init__(self, num_features, dim=16, *, steepness=1.0, **shared):
        super().__init__(num_features, dim, **shared)
        self.steepness = steepness
        self.weight = self.new_table(num_features, dim)

    def encode(self, values, place, context):
        return torch.tanh(values * self.steepness).to(self.weight.dtype).unsqueeze(-1) * self.weight


class Tower(Backbone):
    """An MLP on everything."""

    def __init__(self, num_fields, dim, **settings):
        super().__init__(num_fields, dim, **settings)
        self.mlp = self._mlp(self.input_dim)

    def _logit(self, fields, plain):
        return self.mlp(self.flatten(fields, plain))


@pytest.fixture(autouse=True, scope="module")
def registered():
    register_method("squash", title="squashed values", short="Squash", family="toys", continuous=True)(Squash)
    register_method("squash-hard", title="squashed hard", family="toys", continuous=True, preset={"steepness": 9.0})(
        Squash
    )
    register_backbone("tower", title="Tower")(Tower)
    yield
    del METHODS["squash"], METHODS["squash-hard"], BACKBONES["tower"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"price": rng.normal(size=600), "age": rng.normal(size=600), "city": rng.choice(["A", "B"], 600)}
    )
    frame["click"] = (rng.random(600) < 1 / (1 + np.exp(-frame.price))).astype(int)
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    frame.to_parquet(path)
    return path


def daes(*arguments):
    result = CliRunner().invoke(build_app(), [str(argument) for argument in arguments], prog_name="daes")
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_table_of_methods():
    listed = [row["name"] for row in json.loads(daes("methods", "--json"))]
    assert listed == list(METHODS)
    assert listed[-2:] == ["squash", "squash-hard"]
    assert re.search(r"toys\s+squash\s", daes("methods"))
    assert "| `squash` | squashed values | toys | streaming | yes |" in daes("methods", "--markdown")
    told = json.loads(daes("methods", "squash-hard", "--json"))
    steepness = {"name": "steepness", "default": 9.0, "help": "how fast values are squashed."}
    assert (told["text"], told["options"][0]) == ("The squashed value times a vector.", steepness)


def test_the_table_of_backbones():
    assert [row["name"] for row in json.loads(daes("backbones", "--json"))] == list(BACKBONES)
    assert "| `tower` | Tower |" in daes("backbones", "--markdown")
    assert re.search(r"^tower\s+Tower", daes("backbones"), re.MULTILINE)
    assert json.loads(daes("backbones", "tower", "--json"))["name"] == "tower"


@pytest.mark.parametrize("command", ["train", "compare"])
def test_the_help_of_commands(command):
    assert {"squash", "squash-hard", "tower"} <= set(re.findall(r"[\w-]+", daes(command, "--help")))


def test_training_and_its_report(rows, tmp_path):
    options = ("--method", "squash", "--backbone", "tower", "--method-option", "steepness=2.0", "--batch-size", 100)
    daes("train", rows, "--out", tmp_path / "run", *options)
    model = CTRModel.from_pretrained(tmp_path / "run" / "model")
    assert (type(model.numerical), model.numerical.steepness, type(model.backbone)) == (Squash, 2.0, Tower)
    report = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "squash" in report
    assert "tower" in report


def test_comparing(rows):
    told = daes("compare", rows, "--methods", "fe,squash,squash-hard", "--backbones", "tower", "--batch-size", 100)
    assert re.search(r"^\s*squash\s+0\.\d", told, re.MULTILINE)
    assert re.search(r"^\s*squash-hard\s+0\.\d", told, re.MULTILINE)
    assert "Tower" in told


def test_comparing_in_several_processes(rows, tmp_path, monkeypatch):
    source = """
        from daes.embedding import register_method
        from daes.embedding.fe import FE

        @register_method("elsewhere", title="registered by a module", family="toys")
        class Elsewhere(FE):
            pass
        """
    (tmp_path / "my_methods.py").write_text(textwrap.dedent(source))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("my_methods")
    try:
        found = compare(str(rows), methods=["elsewhere", "fe"], backbones=["fnn"], seeds=1, jobs=2)
    finally:
        del METHODS["elsewhere"]
    assert [result.error for result in found.results] == [None, None]


def test_titles_and_figures_of_experiments(monkeypatch):
    assert (method_title("squash"), method_title("squash-hard"), backbone_title("tower")) == (
        "Squash",
        "squashed hard",
        "Tower",
    )
    monkeypatch.setattr(overall_figure, "how_short", lambda result: "")
    scores = {"squash": np.array([0.6]), "efd": np.array([0.7])}
    results = {"scores": scores, "training": {"backbones": ["fnn", "deepfm"]}}
    figure = overall_figure.methods_figure(SimpleNamespace(results=results), {"": scores})
    (panel,) = figure.axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["EFD", "Squash"]
    assert {text.get_text() for text in panel.texts} == {"static\nbinning", "toys"}


def test_its_picture(tmp_path):
    script = run_path(str(Path(__file__).parents[1] / "docs" / "encodings.py"))
    script["main"](["--out", str(tmp_path), "squash"])
    assert (tmp_path / "encoding-squash.png").stat().st_size > 1000


def test_the_check_suites():
    check_embedding(lambda: build_embedding("squash", 3, 4), skip=GRAPHS)
    check_backbone(lambda *sizes, **plain: build_backbone("tower", *sizes, **plain), skip=GRAPHS)


def test_the_classifier(rows):
    frame = pd.read_parquet(rows)
    model = StreamingClassifier("squash", "tower", batch_size=100).fit(frame.drop(columns="click"), frame.click)
    assert type(model.model_.numerical) is Squash
