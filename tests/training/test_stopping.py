"""Ctrl-C and SIGTERM: the batch in hand is finished, a checkpoint is written, and the run goes on to the same bits."""

import os
import signal
import threading

import pytest

from daes.stream.dataset import Dataset
from daes.training.config import TrainConfig
from daes.training.run import train_run
from daes.training.stopping import TrainingStopped, on_stop_signal


def train(folder, **options):
    config = TrainConfig(batch_size=100, label_delay=1)
    model = {"backbone": "fnn", "dim": 4}
    return train_run(Dataset.open("adstream:1000"), folder, model=model, config=config, sample_rows=200, **options)


def send_at(rows, *numbers):
    def send(trainer, *_):
        if trainer.rows == rows:
            for number in numbers:
                os.kill(os.getpid(), number)

    return send


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_with_a_checkpoint(tmp_path, number, code):
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(TrainingStopped) as caught:
        train(tmp_path / "run", callbacks=[send_at(300, number)])
    assert str(caught.value) == f"stopped by {number.name} after 300 rows; a checkpoint has all of it"
    assert caught.value.exit_code == code
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    resumed, whole = train(tmp_path / "run", resume=True), train(tmp_path / "whole")
    assert (resumed.resumed_at, resumed.result.rows) == (300, 1000)
    weights = [(run.folder.model / "model.safetensors").read_bytes() for run in (resumed, whole)]
    assert weights[0] == weights[1]


def test_a_second_signal_ends_it_at_once(tmp_path):
    with pytest.raises(KeyboardInterrupt) as caught:
        train(tmp_path / "run", callbacks=[send_at(300, signal.SIGINT, signal.SIGINT)])
    assert not isinstance(caught.value, TrainingStopped)


def test_without_a_store_nothing_is_promised():
    assert str(TrainingStopped(signal.SIGTERM, 1200, saved=False)) == "stopped by SIGTERM after 1,200 rows"


def test_another_thread_has_no_signals():
    entered = []

    def enter():
        with on_stop_signal(lambda number: None):
            entered.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert entered == [signal.getsignal(signal.SIGTERM)]
