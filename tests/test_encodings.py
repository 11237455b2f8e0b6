"""The pictures of the docs: what they show, and that they are there."""

from pathlib import Path
from runpy import run_path

import numpy as np
import pytest

from daes.embedding import METHODS

DOCS = Path(__file__).parents[1] / "docs"
IMAGES = DOCS / "images"
LIMIT = 100_000
script = run_path(str(DOCS / "encodings.py"))
clicks, draw, feature, main, panels = (script[name] for name in ("clicks", "draw", "feature", "main", "panels"))


def test_the_feature_is_skewed_and_has_exactly_its_zeros() -> None:
    values = feature()
    assert int((values == 0).sum()) == 6000
    assert float(values[values > 0].median()) == pytest.approx(10, rel=0.05)
    rate = clicks(values)[values.flatten() > 0].mean()
    assert 0.05 < float(rate) < 0.5


@pytest.mark.parametrize("name", ["efd", "ple", "daes"])
def test_tables_are_replaced_so_that_weights_show(name: str) -> None:
    shown = panels(name)[0]
    assert shown.over_rank.shape == (11 if name == "daes" else 10, 400)
    zeros, last = shown.over_rank[:, 0], shown.over_rank[:, -1]
    if name == "efd":
        assert set(np.unique(shown.over_value)) == {0.0, 1.0}
        assert (zeros.argmax(), last.argmax()) == (0, 9)
    elif name == "ple":
        assert zeros.tolist() == [1.0] * 3 + [0.0] * 7
    else:
        np.testing.assert_allclose(shown.over_rank.sum(0), 1.0, atol=1e-5)
        assert zeros.argmax() == 3


def test_context_moves_the_weights_in_the_picture() -> None:
    plain, first, second = panels("daes-tran")
    assert not np.allclose(first.over_rank, second.over_rank)
    assert set(np.unique(plain.over_rank[0])) == {1.0}


@pytest.mark.parametrize("name", ["youtube", "fe", "daes", "daes-gate"])
def test_pictures_are_written(name: str, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "picture.png"
    draw(name, path)
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert len(data) < LIMIT
    draw(name, tmp_path / "again.png")
    assert (tmp_path / "again.png").read_bytes() == data


def test_the_command_draws_what_it_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--out", str(tmp_path), "efd"])
    assert [path.name for path in tmp_path.iterdir()] == ["encoding-efd.png"]
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path), "edf"])
    assert "NAME must be one of efd" in capsys.readouterr().err


@pytest.mark.parametrize("name", METHODS)
def test_the_docs_have_a_picture_of_every_method(name: str) -> None:
    assert 0 < (IMAGES / f"encoding-{name}.png").stat().st_size < LIMIT
