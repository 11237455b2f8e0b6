"""The notebooks of the documentation run, and what is stored in them is what came out."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.read(path, as_version=4)
    stored = [bool(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    assert [bool(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"] == stored


def test_there_are_notebooks():
    assert {"distribution.ipynb", "training.ipynb"} <= {path.name for path in NOTEBOOKS}
