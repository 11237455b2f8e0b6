from dataclasses import replace

import numpy as np
import pytest

from daes.model import CTRModel

pytestmark = pytest.mark.engines
hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")


@pytest.fixture
def model(schema):
    from daes.adapters.hub import HubModel

    return HubModel(schema, backbone="fnn", sizes=10).eval()


def test_a_folder_is_the_same_for_both_classes(model, make_rows, tmp_path):
    from daes.adapters.hub import HubModel

    rows = make_rows(20)
    model.save_pretrained(tmp_path / "hub")
    CTRModel.save_pretrained(model, tmp_path / "plain")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "hub" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    wanted = model.predict_proba(rows)
    for folder in ("hub", "plain"):
        again = HubModel.from_pretrained(tmp_path / folder)
        assert type(again) is HubModel
        np.testing.assert_array_equal(again.predict_proba(rows), wanted)
        np.testing.assert_array_equal(CTRModel.from_pretrained(tmp_path / folder).predict_proba(rows), wanted)


def test_another_schema_is_refused(model, tmp_path):
    from daes.adapters.hub import HubModel

    model.save_pretrained(tmp_path)
    assert HubModel.from_pretrained(tmp_path, schema=model.schema).schema == model.schema
    with pytest.raises(ValueError, match="schema must be the one the model was saved with"):
        HubModel.from_pretrained(tmp_path, schema=replace(model.schema, numerical=model.schema.numerical[::-1]))


def test_the_model_card_names_the_library(model, tmp_path):
    model.save_pretrained(tmp_path)
    assert "library_name: daes" in (tmp_path / "README.md").read_text()


def test_a_repository_is_downloaded(model, make_rows, tmp_path, monkeypatch):
    """There is no network here: what is asked of the Hub is checked, and a folder given for it."""
    from daes.adapters import hub as adapter

    model.save_pretrained(tmp_path)
    asked = []
    monkeypatch.setattr(
        adapter, "snapshot_download", lambda name, **options: (asked.append((name, options)), str(tmp_path))[1]
    )
    monkeypatch.setattr("huggingface_hub.hub_mixin.hf_hub_download", lambda *_, **__: str(tmp_path / "config.json"))
    again = adapter.HubModel.from_pretrained("someone/clicks", revision="v1")
    ((name, options),) = asked
    assert (name, options["revision"]) == ("someone/clicks", "v1")
    assert options["allow_patterns"] == ["config.json", "model.safetensors"]
    np.testing.assert_array_equal(again.predict_proba(make_rows(5)), model.predict_proba(make_rows(5)))


def test_uploading_sends_the_folder(model, monkeypatch):
    sent = {}

    class Api:
        def __init__(self, **_):
            pass

        def create_repo(self, repo_id, **_):
            return type("Repo", (), {"repo_id": repo_id})

        def upload_folder(self, *, folder_path, **_):
            sent.update({path.name: path.stat().st_size for path in folder_path.iterdir()})

    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", Api)
    model.push_to_hub("someone/clicks")
    assert set(sent) == {"README.md", "config.json", "model.safetensors"}
