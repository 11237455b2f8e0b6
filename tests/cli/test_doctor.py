import torch

import daes as package
from daes import native
from daes.cli import doctor
from daes.extras import EXTRA_OF
from daes.training import environment


def test_what_is_installed_and_what_is_missing(daes, monkeypatch):
    whole = daes("doctor", "--json").json
    assert whole["daes"] == package.__version__
    assert whole["machine"]["torch"] == torch.__version__
    assert list(whole["extras"]) == list(dict.fromkeys(EXTRA_OF.values()))
    assert whole["extras"]["data"]["install"] is None
    assert whole["extras"]["stats"]["packages"]["scikit-learn"] is not None
    monkeypatch.setattr(environment, "installed_version", lambda name: None if name == "pyarrow" else "1.0")
    assert daes("doctor", "--json").json["extras"]["data"] == {
        "packages": {"pyarrow": None},
        "install": "pip install 'daes[data]'",
    }
    assert all(extra in doctor._BRINGS for extra in EXTRA_OF.values())


def test_whether_compiled_loops_are_there(daes, monkeypatch):
    monkeypatch.setattr(native, "_library", None)
    assert "`python -m daes.native` makes them" in daes("doctor").stdout
    assert daes("doctor", "--json").json["machine"]["compiled_loops"] is False
    monkeypatch.setattr(native, "_library", object())
    assert "compiled loops for the CPU: there" in daes("doctor").stdout


def test_what_a_gpu_would_bring(daes, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert "no CUDA device: training runs on the CPU" in daes("doctor").stdout
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"card {number}")
    assert "CUDA: card 0, card 1; --device auto takes the first" in daes("doctor").stdout
