import json

import numpy as np
import pytest

from daes.paper import EXPERIMENTS, ExperimentResult, ExperimentSettings
from daes.paper.result import command_of, plain, settings_of

from .conftest import changed


def a_result(**changes):
    parts = {
        "experiment": "overall",
        "data": {"name": "criteo", "title": "Criteo", "rows": 1000},
        "settings": {"protocol": "stream", "seeds": 2},
        "command": "daes paper overall",
        "versions": {"daes": "0"},
        "seconds": 1.5,
        "results": {"auc": [0.5, None], "β": "≥"},
    }
    return ExperimentResult(**{**parts, **changes})


def test_what_is_saved_is_what_is_loaded(tmp_path):
    path = a_result().save(tmp_path / "new")
    assert path.name == "overall.criteo.stream.json"
    assert ExperimentResult.load(path) == a_result()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_stems_tell_data_and_protocol_where_there_are_any():
    assert a_result(data=None, settings={"seeds": 1}).stem == "overall"
    assert a_result(settings={"protocol": "paper"}).stem == "overall.criteo.paper"


def test_stems_tell_what_was_tuned_and_how_many_rows_were_asked_for():
    assert a_result(settings={"protocol": "stream", "tune": True}).stem == "overall.criteo.stream.tuned"
    assert a_result(settings={"protocol": "stream", "tune": False, "rows": None}).stem == "overall.criteo.stream"
    assert a_result(settings={"tune": True, "rows": 50}).stem == "overall.criteo.tuned.rows50"
    data = {"name": "adstream", "source": "adstream:5000", "simulated": True}
    assert a_result(data=data).stem == "overall.adstream.stream.rows5000"
    assert a_result(data=data, settings={"rows": 10**6}).stem == "overall.adstream.rows5000"
    assert a_result(data={**data, "source": "adstream"}).stem == "overall.adstream.stream"
    assert a_result(data=None, settings={"rows": 7}).stem == "overall.rows7"


def test_json_is_strict_and_short():
    found = plain({"a": np.float32(1 / 3), "b": (np.nan, np.inf, -1), 3: np.arange(2), "c": {"d": 123456789}})
    assert found == {"a": 0.333333, "b": [None, None, -1], "3": [0, 1], "c": {"d": 123456789}}
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "daes.paper"}', '{"format": "daes.run", "experiment": 1}']
)
def test_files_that_are_no_results_are_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"x\.json"):
        ExperimentResult.load(path)


def test_commands_name_what_is_not_usual():
    settings = ExperimentSettings(rows=500, seeds=1, tune=True, methods=("fe", "ple"))
    command = command_of(EXPERIMENTS["overall"], settings, "criteo:/data/my train.txt")
    assert command == "daes paper overall --data 'criteo:my train.txt' --rows 500 --seeds 1 --tune --methods fe,ple"
    # What does not matter to an experiment is neither kept nor shown.
    experiment = changed("jump-bias", uses=("rows", "tune"))
    assert command_of(experiment, settings, None) == "daes paper jump-bias --rows 500 --tune"
    assert settings_of(experiment, settings) == {"rows": 500, "tune": True}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 0}, "rows must be positive, got 0"),
        ({"batch_size": -1}, "batch_size must be positive, got -1"),
        ({"protocol": "offline"}, "protocol must be one of stream, paper, got 'offline'"),
        ({"methods": ("efd", "nonsense")}, "methods must be among .*, got 'nonsense'"),
        ({"methods": ("efd", "daes-gat")}, "did you mean 'daes-gate'"),
        ({"methods": ("efd", "efd")}, "methods must name each one once; 'efd' occurs twice"),
        ({"backbones": ("deepfm", "deepfmm")}, "backbones must be among .*'deepfmm'"),
        ({"backbones": ()}, "backbones must name at least one"),
        ({"given": ("none", "all")}, "given must be among none, plain, evidence, both, got 'all'"),
        ({"given": ()}, "given must name at least one"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        ExperimentSettings(**changes)
