"""Rows that wait for labels of another topic, against a join in memory."""

import errno
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from daes.model import CTRModel
from daes.storage import checkpoint
from daes.storage.checkpoint import CheckpointStore, CheckpointWarning
from daes.storage.segments import Segments
from daes.stream.batch import Batch
from daes.stream.dataset import Dataset
from daes.stream.messages import LabelReader, Message, MessageSource
from daes.stream.schema import Schema
from daes.training.config import TrainConfig
from daes.training.label_join import LabelJoin, LateLabels
from daes.training.trainer import StreamTrainer

SECOND = 1_000_000_000
SCHEMA = Schema("click", ("price", "age"), ("city",))
ROWS, WINDOW = 1200, 30.0
CONFIG = TrainConfig(batch_size=50, checkpoint_every=10**9, window=10_000)


class Log:
    """A topic in memory whose messages were all sent before now."""

    def __init__(self, name, messages):
        self.name = name
        self._messages = [Message(0, place, sent, data) for place, (sent, data) in enumerate(messages)]
        self._next = 0

    def start(self):
        return {0: 0}

    def seek(self, offsets):
        self._next = offsets[0]

    def poll(self, most, seconds):
        found = self._messages[self._next : self._next + min(most, 97)]
        self._next += len(found)
        return found

    def lag(self):
        return len(self._messages) - self._next

    def complete_until(self):
        if self._next < len(self._messages):
            return self._messages[self._next - 1].sent if self._next else 0
        return 10**18

    def close(self):
        pass


class TwoPartitions:
    """A topic in memory whose messages lie in two partitions, of which `poll` gives one and the other in turn."""

    def __init__(self, name, messages):
        self.name = name
        halves = (messages[0::2], messages[1::2])
        self._parts = [
            [Message(number, place, sent, data) for place, (sent, data) in enumerate(half)]
            for number, half in enumerate(halves)
        ]
        self._next, self._turn = [0, 0], 0

    def start(self):
        return {0: 0, 1: 0}

    def seek(self, offsets):
        self._next = [offsets[0], offsets[1]]

    def poll(self, most, seconds):
        for _ in self._parts:
            self._turn = 1 - self._turn
            start = self._next[self._turn]
            found = self._parts[self._turn][start : start + min(most, 97)]
            self._next[self._turn] += len(found)
            if found:
                return found
        return []

    def complete_until(self):
        return min(
            10**18 if n == len(part) else part[n - 1].sent if n else 0
            for n, part in zip(self._next, self._parts, strict=True)
        )

    def close(self):
        pass


def simulated(seed=0, pause=0):
    """Impressions, labels, and what the label of each row must be; no row is sent for a while in the middle."""
    random = np.random.default_rng(seed)
    sent = np.cumsum(random.integers(1, SECOND // 2, ROWS)) + SECOND
    sent[ROWS // 2 :] += pause * SECOND
    price = random.lognormal(size=ROWS)
    impressions, labels, expected = [], [], np.zeros(ROWS)
    for n in range(ROWS):
        row = {"id": f"row {n}", "price": round(float(price[n]), 3), "age": n % 70, "city": n % 9}
        impressions.append((int(sent[n]), json.dumps(row).encode()))
        if random.random() < 1 / (1 + price[n]):
            after = float(random.exponential(WINDOW / 2))
            labels.append((int(sent[n] + after * SECOND), json.dumps({"id": f"row {n}"}).encode()))
            expected[n] = after <= WINDOW
        elif random.random() < 0.1:
            labels.append((int(sent[n] + SECOND), json.dumps({"id": f"row {n}", "click": 0}).encode()))
    labels += [(int(sent[k]), b'{"id": "nobody"}') for k in (5, 700)] + [(int(sent[9]), b"poison")]
    return impressions, sorted(labels, key=lambda label: label[0]), expected


def join_of(labels, **options):
    late = LateLabels("nats://localhost/CLICKS", "id", WINDOW, **options)
    return LabelJoin(LabelReader(Log("labels", labels), "id", "click"), late, 50)


def spilling_join(labels, store):
    """A join with the features of most rows on disk, in segments of 50 rows."""
    join = join_of(labels, max_pending=60, overflow="spill")
    join.rows.segments = Segments(store.directory.parent / "pending", store)
    join.rows._segment_rows = 50
    return join


def data_of(impressions, limit=ROWS):
    return Dataset(MessageSource(Log("rows", impressions), key="id", max_wait=5.0), SCHEMA, limit=limit)


class Seen:
    """Ages in the order of scoring, and rows, labels and logits in the order of learning."""

    def __init__(self):
        self.labels, self.logits, self.rows = [], [], []

    def __call__(self, trainer, batch, logits):
        self.labels += batch.label.tolist()
        self.logits += logits.tolist()
        self.rows += batch.numerical[:, 0].tolist()


def train(make_model, join, data, **options):
    seen = Seen()
    trainer = StreamTrainer(make_model(schema=SCHEMA), CONFIG, waiting=join, callbacks=[seen], **options)
    return trainer, seen, trainer.run(data)


@pytest.fixture
def make_model():
    def make(schema):
        torch.manual_seed(0)
        return CTRModel(schema, "daes", "fnn", dim=4, sizes=20, backbone_options={"hidden": (8,)})

    return make


def test_every_row_has_the_label_that_came_in_its_window(make_model):
    impressions, labels, expected = simulated()
    trainer, seen, result = train(make_model, join_of(labels), data_of(impressions))
    assert result.rows == result.metrics["rows"] == ROWS
    assert seen.labels == expected.tolist()
    assert seen.rows == [np.float32(json.loads(data)["price"]) for _, data in impressions]
    found = trainer.waiting.describe()
    explicit = sum(b'"click"' in data for _, data in labels)
    assert found["matched"] == expected.sum() + explicit
    # Labels that come after the last window are not waited for.
    assert 50 < found["unmatched"] <= len(labels) - 1 - found["matched"]
    assert (found["early"], found["dropped"], found["repeated"], found["pending"]) == (0, 0, 0, 0)


def test_a_row_is_scored_when_it_comes_and_learned_from_when_its_window_is_over(make_model):
    impressions, labels, expected = simulated()
    sent = np.array([sent for sent, _ in impressions])
    _, seen, _ = train(make_model, join_of(labels), data_of(impressions))
    # The same by hand: before a batch that was sent at t, learn from whole batches of rows with windows over by t.
    model = make_model(schema=SCHEMA)
    plain = StreamTrainer(model, CONFIG)
    plain.step.correcting = False  # labels come too late to say what the last scores got wrong
    batches = list(data_of(impressions).batches(50))
    logits, learned = [], 0

    def learn(rows):
        whole = Batch.concat([Batch(batch.numerical, batch.categorical) for batch in batches])[rows]
        label = expected[rows].astype(np.float32)
        plain.step.learn(Batch(whole.numerical, whole.categorical, label), rows.start)

    for place, batch in enumerate(batches):
        over = int((sent + int(WINDOW * SECOND) <= sent[place * 50]).sum())
        while over - learned >= 50:
            learn(slice(learned, learned + 50))
            learned += 50
        logits += plain.step.score(batch).tolist()
    assert 0 < learned < ROWS
    assert seen.logits == logits


def test_labels_of_several_partitions_are_not_in_the_order_of_time(make_model):
    impressions, labels, expected = simulated()
    late = LateLabels("kafka://localhost/clicks", "id", WINDOW)
    join = LabelJoin(LabelReader(TwoPartitions("labels", labels), "id", "click"), late, 50)
    trainer, seen, result = train(make_model, join, data_of(impressions))
    whole, _, of_one = train(make_model, join_of(labels), data_of(impressions))
    assert seen.labels == expected.tolist()
    assert result.metrics == of_one.metrics
    assert trainer.waiting.counts.matched == whole.waiting.counts.matched


@pytest.mark.parametrize(("stop", "pause"), [(50, 0), (350, 0), (700, 0), (500, 60), (550, 60)])
def test_a_join_that_is_interrupted_goes_on_to_the_same_bits(make_model, stop, pause):
    """After a pause in the middle of the stream, many rows are due at once."""
    impressions, labels, _ = simulated(pause=pause)
    whole, _, result = train(make_model, join_of(labels), data_of(impressions))
    letters = []

    def keep(trainer, batch, logits):
        if trainer.rows == stop:
            trainer.stop(15)

    first = StreamTrainer(make_model(schema=SCHEMA), CONFIG, waiting=join_of(labels), callbacks=[keep])
    with pytest.raises(KeyboardInterrupt):
        first.run(data_of(impressions))
    state = first.state_dict()
    assert first.waiting.pending > 0
    again = StreamTrainer(make_model(schema=SCHEMA), CONFIG, waiting=join_of(labels), callbacks=[Seen()])
    again.waiting.labels.on_dead_letter = letters.append
    again.load_state_dict(state)
    data = data_of(impressions)
    data.seek(state["position"])
    ended = again.run(data, resume=False)
    assert ended.metrics == result.metrics
    assert again.waiting.describe() == whole.waiting.describe()
    assert all(tensor.equal(whole.model.state_dict()[name]) for name, tensor in again.model.state_dict().items())
    assert len(letters) <= 1


def test_labels_may_come_before_their_rows_are_read(make_model):
    impressions = [(10 * SECOND, b'{"id": 1, "price": 1}'), (11 * SECOND, b'{"id": 2, "price": 2}')]
    labels = [(10 * SECOND - 5, b'{"id": "1"}')]
    _, seen, _ = train(make_model, join_of(labels), data_of(impressions, 2))
    assert seen.labels == [1, 0]


def test_too_many_rows_are_learned_from_early_or_dropped(make_model):
    impressions, labels, expected = simulated()
    early, seen, result = train(make_model, join_of(labels, max_pending=60), data_of(impressions))
    assert result.rows == ROWS
    found = early.waiting.describe()
    assert 0 < found["early"] < ROWS
    assert found["dropped"] == 0
    assert np.mean(np.array(seen.labels) <= expected) == 1
    dropped, _, result = train(make_model, join_of(labels, max_pending=60, overflow="drop"), data_of(impressions))
    assert result.rows == ROWS - dropped.waiting.counts.dropped < ROWS


def test_rows_may_be_spilled_to_disk_and_nothing_changes(make_model, tmp_path):
    impressions, labels, _ = simulated()
    whole, seen, result = train(make_model, join_of(labels), data_of(impressions))

    store = CheckpointStore(tmp_path / "checkpoints", keep=1)
    spilling = lambda: spilling_join(labels, store)  # noqa: E731

    most = []
    note = lambda trainer, batch, logits: most.append(trainer.waiting.rows.spilled)  # noqa: E731
    trainer = StreamTrainer(make_model(schema=SCHEMA), CONFIG, waiting=spilling(), callbacks=[note])
    assert trainer.run(data_of(impressions)).metrics == result.metrics
    assert max(most) >= 50
    # Interrupted while rows are on disk, with a checkpoint after every batch of labelled rows.
    stopping = StreamTrainer(
        make_model(schema=SCHEMA),
        CONFIG,
        waiting=spilling(),
        callbacks=[lambda trainer, batch, logits: trainer.rows == 500 and trainer.stop(15)],
    )
    with pytest.raises(KeyboardInterrupt):
        stopping.run(data_of(impressions))
    state = stopping.state_dict()
    assert stopping.waiting.rows.spilled > 0
    again = StreamTrainer(make_model(schema=SCHEMA), CONFIG, waiting=spilling())
    again.load_state_dict(state)
    data = data_of(impressions)
    data.seek(state["position"])
    assert again.run(data, resume=False).metrics == result.metrics
    for step in range(2):
        store.save(step, again.state_dict())
    again.state_dict()
    assert list((tmp_path / "pending").glob("*.segment")) == []
    assert len(seen.labels) == ROWS
    assert whole.waiting.rows.spilled == 0


def test_rows_on_disk_are_kept_for_a_checkpoint_while_later_ones_cannot_be_written(make_model, tmp_path, monkeypatch):
    impressions, labels, _ = simulated()
    config = replace(CONFIG, checkpoint_every=50)
    result = StreamTrainer(make_model(schema=SCHEMA), config, waiting=join_of(labels)).run(data_of(impressions))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    def act(trainer, batch, logits):
        if trainer.rows == 300:
            trainer.store.wait()
            monkeypatch.setattr(checkpoint, "write_encoded", full)
        if trainer.rows == 900:
            raise RuntimeError("killed")

    killed, warned = pytest.raises(RuntimeError, match="killed"), pytest.warns(CheckpointWarning, match="No space left")
    with killed, warned, CheckpointStore(tmp_path / "checkpoints", keep=1) as store:
        options = {"waiting": spilling_join(labels, store), "store": store, "callbacks": [act]}
        StreamTrainer(make_model(schema=SCHEMA), config, **options).run(data_of(impressions))
    monkeypatch.undo()
    with CheckpointStore(tmp_path / "checkpoints", keep=1) as store:
        again = StreamTrainer(make_model(schema=SCHEMA), config, waiting=spilling_join(labels, store), store=store)
        assert again.run(data_of(impressions)).metrics == result.metrics


def test_rows_with_the_key_of_a_row_that_waits_are_counted(make_model):
    impressions = [(10 * SECOND, b'{"id": 1, "price": 1}'), (11 * SECOND, b'{"id": 1, "price": 2}')]
    trainer, seen, _ = train(make_model, join_of([(12 * SECOND, b'{"id": 1}')]), data_of(impressions, 2))
    assert (seen.labels, trainer.waiting.counts.repeated) == ([0, 1], 1)


def test_bad_labels_are_dead_letters(make_model):
    impressions = [(10 * SECOND, b'{"id": 1, "price": 1}')]
    bad = [b"x", b'{"id": 1, "click": 2}', b'{"click": 1}', b'{"id": null}', b'{"id": [1]}']
    join = join_of([(11 * SECOND, data) for data in bad])
    letters = []
    join.labels.on_dead_letter = letters.append
    _, seen, _ = train(make_model, join, data_of(impressions, 1))
    assert seen.labels == [0]
    assert [letter.data for letter in letters] == bad
    assert letters[1].reason == "label 'click' must be 0 or 1, got 2"


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="max_pending must be positive, got 0"):
        LateLabels("nats://localhost/CLICKS", "id", 1.0, 0)
    with pytest.raises(ValueError, match="overflow must be one of no-click, drop, spill, got 'keep'"):
        LateLabels("nats://localhost/CLICKS", "id", 1.0, overflow="keep")


def test_rows_without_keys_cannot_wait(make_model, schema):
    _, labels, _ = simulated()
    source = MessageSource(Log("rows", [(SECOND, b'{"click": 1, "price": 1}')]))
    with pytest.raises(TypeError, match="rows whose labels come later must have keys, got a Batch"):
        train(make_model, join_of(labels), Dataset(source, SCHEMA, limit=1))
