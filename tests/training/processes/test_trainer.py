"""Several processes against one: the same statistics bit for bit, the same parameters but for rounding."""

import time

import numpy as np
import pytest
import torch

from daes.embedding.processes import ProcessesDisagreeError
from daes.evidence import EvidenceInputs
from daes.evidence.division import part_of
from daes.storage.checkpoint import CheckpointStore
from daes.stream.dataset import Dataset
from daes.stream.source import BatchSource
from daes.training.config import TrainConfig
from daes.training.processes import Processes, ProcessTrainer, memory
from daes.training.processes.scores import in_order
from daes.training.trainer import StreamTrainer

EVIDENCE = {
    **{"pairs": 2, "bins": 8, "pair_bins": 4, "sample_rows": 50, "pair_cells": 64, "choose_after": 64},
    "recent": 1.0,  # less than a step, so that scores wait to be exchanged
}


def _model(make_model, recent=1.0):
    return make_model(
        evidence={**EVIDENCE, "recent": recent},
        categorical_options={"mode": "vocabulary", "min_count": 2},
        embedding_options={"reservoir_size": 60},
    )


def _data(rows, schema):
    return Dataset(BatchSource(rows, schema), schema)


def _train(rank, make_model, rows, schema, config, recent):
    processes = Processes()
    calls = []

    def note(trainer, batch, logits):
        calls.append((len(batch), batch.numerical[:, 0].copy()))

    trainer = ProcessTrainer(_model(make_model, recent), config, processes, callbacks=[note])
    result = trainer.run(_data(rows, schema).from_start())
    state = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    return result, trainer.metrics.state_dict(), state, calls, trainer.exchanges


@pytest.mark.parametrize(
    ("world", "count", "config", "recent"),
    [
        (2, 413, TrainConfig(batch_size=40, window=200, sync_every=1), 1.0),
        (2, 413, TrainConfig(batch_size=2, window=200), 2.0),
        (3, 31, TrainConfig(batch_size=2, window=20, sync_every=10), 1.0),
        (2, 413, TrainConfig(batch_size=2, window=200, sync_every=6), 1.0),
    ],
    ids=["uneven parts", "steps as long as recent errors last", "a process without rows", "exchanged later"],
)
def test_equal_to_one_process(request, world, count, config, recent, in_processes, make_model, make_rows, schema):
    rows = make_rows(count)
    together = in_processes(world, _train, make_model, rows, schema, config, recent)
    alone = _train(0, make_model, rows, schema, config, recent)
    plain = StreamTrainer(_model(make_model, recent), config)
    plain.run(_data(rows, schema).from_start())
    state = plain.model.state_dict()
    for result, metrics, found, calls, exchanges in together:
        assert result.rows == count == metrics["auc"]["count"]
        assert exchanges == alone[4] > 3
        # every process has the same metrics, in the order of the stream
        np.testing.assert_array_equal(metrics["window"]["window"], together[0][1]["window"]["window"])
        np.testing.assert_array_equal(metrics["window"]["window"][1], rows.label[-config.window :])
        np.testing.assert_array_equal(np.concatenate([values for _, values in calls]), rows.numerical[:, 0])
        assert result.metrics["auc"] == pytest.approx(alone[0].metrics["auc"], abs=2e-3)
        for name, tensor in found.items():
            assert torch.equal(tensor, together[0][2][name]), name  # the same bits in all processes
            if tensor.is_floating_point():
                torch.testing.assert_close(tensor, alone[2][name], rtol=1e-3, atol=1e-4, equal_nan=True)
        # and what is counted is that of one process that has read everything
        for name in (
            *(f"numerical.distributions.{part}" for part in ("slots", "count", "skipped", "minimum", "maximum")),
            *(f"categorical.vocabulary.{part}" for part in ("keys", "key_rows", "used", "overflow", "observed")),
            *(f"evidence.{part}" for part in ("total", "sample.numerical", "sample.label", "sample.seen")),
        ):
            assert torch.equal(found[name], state[name]), name
        steps = -(-count // config.batch_size)
        later = "exchanged later" in request.node.name
        assert (exchanges < steps) == later
        if not later:  # all else is that of one process too, but for rounding
            for name, tensor in found.items():
                torch.testing.assert_close(tensor, state[name], rtol=1e-3, atol=1e-4, equal_nan=True, msg=name)


def _share(rank, make_model, rows, schema, config, options, by_messages):
    if by_messages:
        memory._machine = lambda: None
    processes = Processes()
    model = make_model(evidence={**EVIDENCE, "triples": 2}, embedding_options={"reservoir_size": 60}, **options)
    trainer = ProcessTrainer(model, config, processes)
    trainer.run(_data(rows, schema).from_start())
    assert (processes.memory is None) == (by_messages or memory._machine() is None)
    (sums,) = (one.state_dict()["sums"] for one in trainer.step.optimizers.parts)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    processes.gather(None)
    if rank == 0:  # what was shared is each one's own again
        for tensor in model.state_dict().values():
            tensor.zero_()
    processes.gather(None)
    if rank > 0:
        assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    return before, [one.clone() for one in sums], len(trainer.bad_batches)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({"backbone": "deepfm"}, {}),
        ({"backbone": "deepfm"}, {"clip_norm": 0.01}),
        ({"backbone": "deepfm"}, {"max_norm": 0.35, "bad_batch": "skip"}),
        ({"backbone": "deepfm", "backbone_options": {"hidden": (8,), "batch_norm": True}}, {}),
        ({"backbone": "dcnv2"}, {}),
        ({"backbone": "dcnv2", "categorical_options": {"mode": "vocabulary", "min_count": 2}}, {}),
    ],
    ids=["compiled step", "clipped", "bad batches", "batch norm", "crosses", "vocabulary"],
)
def test_shared_memory_changes_no_bit(world, options, changes, in_processes, make_model, make_rows, schema):
    """Counted once, each column by one process, and each row of the table changed by one: as if each did it all."""
    rows, config = make_rows(600), TrainConfig(batch_size=30, window=200, sync_every=90, **changes)
    told = in_processes(world, _share, make_model, rows, schema, config, options, True)
    shared = in_processes(world, _share, make_model, rows, schema, config, options, False)
    exactly = {"rtol": 0, "atol": 0, "equal_nan": True}
    if "clip_norm" in changes:  # the norm of all rows is added up in another order
        exactly = {"rtol": 1e-5, "atol": 1e-6, "equal_nan": True}
    for state, sums, bad in shared:
        for name, tensor in told[0][0].items():
            torch.testing.assert_close(state[name], tensor, msg=name, **exactly)
        if "clip_norm" not in changes:
            for one, other in zip(sums[:-1], told[0][1][:-1], strict=True):
                torch.testing.assert_close(one, other, **exactly)
        assert bad == told[0][2] == shared[0][2]
        assert (0 < bad < 20) == ("max_norm" in changes)
    whole = told[0][1]
    table = next(place for place, one in enumerate(whole) if one.shape == told[0][0]["categorical.weight"].shape)
    torch.testing.assert_close(shared[0][1][table], whole[table], rtol=1e-5, atol=1e-6)
    assert (told[0][0]["evidence.combinations.fields"] >= 0).any()


class _OwnEvidence(EvidenceInputs):
    updates = 0

    def update(self, *arguments, **options):
        self.updates += 1
        super().update(*arguments, **options)


def _own_evidence(rank, make_model, rows, schema):
    model = make_model()
    model.evidence.__class__ = _OwnEvidence
    trainer = ProcessTrainer(model, TrainConfig(batch_size=40, window=200), Processes())
    trainer.run(_data(rows, schema).from_start())
    return trainer.exchanges, model.evidence.updates, model.evidence.total.tolist()


def test_evidence_of_its_own_counts_all_rows_in_every_process(in_processes, make_model, make_rows, schema):
    rows = make_rows(400)
    for exchanges, updates, total in in_processes(2, _own_evidence, make_model, rows, schema):
        assert updates == exchanges > 3
        assert total == [400, rows.label.sum()]


def _slow(rank, make_model, rows, schema, slow):
    trainer = ProcessTrainer(make_model(), TrainConfig(batch_size=40, window=200), Processes())
    score = trainer.step.score
    if rank == slow:
        trainer.step.score = lambda batch: time.sleep(0.3) or score(batch)
    found = []
    trainer.callbacks = [lambda trainer, batch, logits: found.append(logits)]
    trainer.run(_data(rows, schema).from_start())
    return np.concatenate(found)


def test_a_slow_process_scores_with_what_the_others_knew(in_processes, make_model, make_rows, schema):
    expected, *others = [in_processes(2, _slow, make_model, make_rows(200), schema, slow)[0] for slow in (None, 0, 1)]
    for scores in others:
        np.testing.assert_array_equal(scores, expected)


def test_scores_in_the_order_of_the_stream():
    lengths = [5, 1, 4]
    starts = np.cumsum([0, *lengths[:-1]])
    told = [
        np.concatenate(
            [
                np.arange(*part_of(start, start + length, rank, 3), dtype=np.float32)
                for start, length in zip(starts, lengths, strict=True)
            ]
        )
        for rank in range(3)
    ]
    assert [len(one) for one in told] == [2, 3, 5]
    np.testing.assert_array_equal(in_order(told, lengths), np.arange(10))


def _diverge(rank, make_model, rows, schema):
    trainer = ProcessTrainer(_model(make_model), TrainConfig(batch_size=40), Processes())
    if rank:
        trainer.model.evidence.total += 1
    with pytest.raises(ProcessesDisagreeError, match=r"processes 0 and 1 have different models.*evidence.total"):
        trainer.run(_data(rows, schema).from_start())


def _different_lengths(rank, make_model, rows, schema):
    trainer = ProcessTrainer(_model(make_model), TrainConfig(batch_size=40), Processes())
    data = _data(rows[: 200 - 80 * rank], schema)
    with pytest.raises(ProcessesDisagreeError, match="do not read the same data"):
        trainer.run(data.from_start())


@pytest.mark.parametrize("function", [_diverge, _different_lengths])
def test_processes_that_disagree(function, in_processes, make_model, make_rows, schema):
    in_processes(2, function, make_model, make_rows(200), schema)


def test_label_delay_is_refused(make_model):
    with pytest.raises(ValueError, match="label_delay must be 0 with several processes, got 2"):
        ProcessTrainer(make_model(), TrainConfig(label_delay=2), Processes())


def test_rows_that_were_skipped_make_errors_no_older(make_model, make_rows, schema):
    """A batch that cannot be learned from is no row of the stream to recent errors, whoever trains."""
    rows, config = make_rows(200), TrainConfig(batch_size=20, sync_every=1, bad_batch="skip", max_norm=1e30)
    found = []
    for make in (StreamTrainer, lambda *arguments: ProcessTrainer(*arguments, Processes())):
        trainer = make(make_model(evidence={"recent": 5.0}), config)
        pieces = trainer._batches

        def with_a_hole(source, pieces=pieces, trainer=trainer):
            for row, batch in pieces(source):
                if row == 100:
                    trainer.step.skip(row, "it cannot be read")
                else:
                    yield row, batch

        trainer._batches = with_a_hole
        scores = []
        trainer.callbacks = [lambda _, batch, logits, scores=scores: scores.append(logits)]
        trainer.run(_data(rows, schema).from_start())
        assert trainer.model.evidence.recent.waiting == 0
        found.append(np.concatenate(scores))
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)


def test_restored_from_its_own_store_to_the_same_bits(make_model, make_rows, schema, tmp_path):
    rows, config = make_rows(900), TrainConfig(batch_size=5, sync_every=1000, checkpoint_every=300, window=200)

    def run(folder, stop_at=None):
        def stop(trainer, *_):
            if stop_at is not None and trainer.rows >= stop_at:
                trainer.store.wait()
                raise InterruptedError

        with CheckpointStore(folder) as store:
            model = make_model(evidence={"recent": 4.0})  # less than a step: some scores are not exchanged yet
            trainer = ProcessTrainer(model, config, Processes(), store=store, callbacks=[stop])
            trainer.run(_data(rows, schema).from_start())
        return trainer.model.state_dict()

    expected = run(tmp_path / "whole")
    with pytest.raises(InterruptedError):
        run(tmp_path / "parts", stop_at=700)
    for name, tensor in run(tmp_path / "parts").items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=0, equal_nan=True, msg=name)
