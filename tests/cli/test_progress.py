from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from daes.cli import console, progress
from daes.metrics.stream import StreamMetrics


@pytest.fixture
def screen(monkeypatch):
    def use(terminal):
        screen = Console(file=StringIO(), force_terminal=terminal, width=140)
        monkeypatch.setattr(console, "err", screen)
        return screen.file

    return use


def test_a_bar_on_a_terminal(screen, monkeypatch):
    text = screen(terminal=True)
    monkeypatch.setattr(progress, "_BETWEEN_METRICS", 0.0)
    with progress.row_progress("training", 1000) as bar:
        bar.advance(400, lambda: "AUC 0.7000")
        bar._bar.refresh()
    shown = text.getvalue()
    for part in ("training", "40%", "400 rows", "rows/s", "AUC 0.7000"):
        assert part in shown


def test_a_line_now_and_then_elsewhere(screen, monkeypatch):
    text = screen(terminal=False)
    monkeypatch.setattr(progress, "_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(progress, "_BETWEEN_METRICS", 0.0)
    with progress.row_progress("training") as bar:
        bar.set_total(10_000)
        bar.start_at(1000)
        bar.advance(500, lambda: "AUC 0.7000 LogLoss 0.4000")
    line = text.getvalue()
    assert line.startswith("training: 1,500 rows, ")
    assert "AUC 0.7000 LogLoss 0.4000" in line
    assert "minutes left" in line
    monkeypatch.setattr(progress, "_BETWEEN_LINES", 100.0)
    text = screen(terminal=False)
    with progress.row_progress("training") as bar:
        bar.advance(500)
    assert text.getvalue() == ""


def test_the_status_is_asked_for_once_a_second(screen, monkeypatch):
    screen(terminal=False)
    asked = []
    times = iter(range(1000))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(times) / 4)  # once per call of `advance`
    with progress.row_progress("training") as bar:
        for _ in range(13):
            bar.advance(1, lambda: asked.append(1) or "")
    assert len(asked) == 3


def test_an_error_in_a_bar_is_not_markup(screen):
    text = screen(terminal=True)
    trial = SimpleNamespace(label="fe", backbone="fnn", seed=0)
    result = SimpleNamespace(error="ValueError: [/x]")
    with progress.trial_progress() as show:
        show(SimpleNamespace(trial=trial, result=result, rows=0, total_rows=1, trials=1, trials_done=1))
    assert "failed: ValueError: [/x]" in text.getvalue()


def test_words_about_the_window():
    metrics = StreamMetrics(window=3)
    metrics.update([0.0, 1.0], [0, 0])
    assert progress.metric_status(metrics) == ""
    metrics.update([-1.0, 2.0], [0, 1])
    assert progress.metric_status(metrics).startswith("AUC 1.0000 LogLoss 0.")
