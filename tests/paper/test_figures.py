import pytest

from daes.paper import figures


def a_figure():
    with figures.style():
        figure, axes = figures.panels(1, 2, 3)
        axes[0].plot([1, 2], [3, 4])
        figures.at_end(axes[0], 2, 4, "a line", figures.BLUE)
        figures.headline(figure, "A title", "and what is under it")
    return figure


@pytest.mark.parametrize("ending", [".png", ".svg"])
def test_the_same_figure_gives_the_same_bytes(tmp_path, ending):
    paths = [tmp_path / f"{name}{ending}" for name in "ab"]
    for path in paths:
        with figures.style():
            figures.save(a_figure(), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"\.png or \.svg"):
        figures.save(a_figure(), tmp_path / "figure.pdf")


def test_the_title_does_not_cover_the_panels():
    figure = a_figure()
    with figures.style():
        figure.canvas.draw()
    height = figure.get_figheight() * figure.dpi
    assert figure.axes[0].get_position().y1 * height < height - 0.4 * figure.dpi
