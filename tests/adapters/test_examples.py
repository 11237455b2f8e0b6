"""The examples run and say what they should."""

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.engines
FOLDER = Path(__file__).parents[2] / "examples"
NEEDS = {
    "rtdl": "rtdl_num_embeddings",
    "pytorch_frame": "torch_frame",
    "fuxictr_model": "fuxictr",
    "torchrec_dlrm": "torchrec",
    "river_stream": "river",
    "hugging_face": "huggingface_hub",
}
SAYS = {"fuxictr_model": "by daes: ['price']", "river_stream": "daes: ROCAUC", "hugging_face": "same scores: True"}


def test_every_example_is_run():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(NEEDS)


@pytest.mark.parametrize("name", NEEDS)
def test_it_runs(name, capsys):
    pytest.importorskip(NEEDS[name])
    runpy.run_path(str(FOLDER / f"{name}.py"))
    said = capsys.readouterr().out
    if name in SAYS:
        assert SAYS[name] in said
    else:  # what was learned is easy: far below the loss of a guess, 0.69
        assert float(said.rsplit(":", 1)[1]) < 0.3
