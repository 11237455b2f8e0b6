"""Saved models: two files, whole or refused, the old or the new one whatever happens in between."""

import hashlib
import json
import os
import pickle
import stat
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save

from daes.model import CTRModel
from daes.storage.saved_model import CONFIG, VERSION, WEIGHTS, load_weights, open_model, sealed
from daes.stream.batch import Batch
from daes.stream.schema import Schema

SCHEMA = Schema("click", ("price", "größe"), ("city", "device"))
ROWS = Batch(
    np.random.default_rng(0).lognormal(size=(30, 2)).astype(np.float32),
    np.random.default_rng(1).integers(0, 9, (30, 2)),
)


def make_model(seed=0, **options):
    torch.manual_seed(seed)
    model = CTRModel(SCHEMA, "daes-gate", "fnn", dim=4, sizes=20, categorical_options={"init_std": 1.0}, **options)
    model(ROWS)
    return model


def scores(model):
    return model.predict_proba(ROWS).tolist()


def files(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def saved(tmp_path):
    make_model().save_pretrained(tmp_path)
    return tmp_path


def edit_config(folder, change, seal=sealed):
    """Another configuration, and its digest: what is not caught by the digest must be caught later."""
    stored = json.loads((folder / CONFIG).read_text())
    change(stored)
    (folder / CONFIG).write_text(json.dumps(seal(stored)))


def replace_weights(folder, data):
    """Other weights, and their digest in the configuration: what is not caught by the digest must be caught later."""
    (folder / WEIGHTS).write_bytes(data)
    edit_config(folder, lambda stored: stored.update(sha256=hashlib.sha256(data).hexdigest()))


class TestFolder:
    def test_two_files_and_nothing_else(self, saved):
        assert files(saved) == [CONFIG, WEIGHTS]
        make_model(1).save_pretrained(saved)
        assert files(saved) == [CONFIG, WEIGHTS]

    def test_the_weights_are_an_ordinary_safetensors_file(self, saved):
        model = make_model()
        found = load_file(saved / WEIGHTS)
        assert found.keys() == model.state_dict().keys()
        for name, tensor in model.state_dict().items():
            torch.testing.assert_close(found[name], tensor, rtol=0, atol=0, equal_nan=True)

    def test_the_configuration_is_readable_json(self, saved):
        text = (saved / CONFIG).read_text(encoding="utf-8")
        stored = json.loads(text)
        assert stored["format"] == "daes.model"
        assert stored["version"] == VERSION
        assert stored["sha256"] == hashlib.sha256((saved / WEIGHTS).read_bytes()).hexdigest()
        assert stored["schema"]["numerical"] == ["price", "größe"]
        assert "größe" in text
        assert stored["model"]["embedding"] == "daes-gate"

    def test_saving_what_was_loaded_gives_the_same_bytes(self, saved, tmp_path_factory):
        again = tmp_path_factory.mktemp("again")
        CTRModel.from_pretrained(saved).save_pretrained(again)
        for name in (CONFIG, WEIGHTS):
            assert (again / name).read_bytes() == (saved / name).read_bytes()

    def test_loading_needs_no_second_copy(self, saved, monkeypatch):
        model = make_model(1)
        table, others = model.categorical.weight.data_ptr(), []
        monkeypatch.setattr("daes.storage.saved_model.empty_tensor", lambda *what: others.append(what))
        with open_model(saved) as (_, _, weights):
            load_weights(model, weights, saved)
        assert model.categorical.weight.data_ptr() == table
        assert others == []
        assert scores(model) == scores(make_model())

    def test_folders_are_made(self, tmp_path):
        make_model().save_pretrained(str(tmp_path / "a" / "b"))
        assert scores(CTRModel.from_pretrained(str(tmp_path / "a" / "b"))) == scores(make_model())

    def test_the_umask_decides_who_may_read(self, tmp_path):
        before = os.umask(0o027)
        try:
            make_model().save_pretrained(tmp_path / "model")
        finally:
            os.umask(before)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "model").iterdir()}
        assert modes == {CONFIG: 0o640, WEIGHTS: 0o640}

    def test_files_of_others_stay(self, saved):
        others = ["README.md", f"{WEIGHTS}.index.json", f"old-{WEIGHTS}", f"{WEIGHTS}.{'0' * 63}"]
        for name in others:
            (saved / name).write_text("mine")
        make_model(1).save_pretrained(saved)
        assert files(saved) == sorted([CONFIG, WEIGHTS, *others])

    def test_options_that_are_not_plain_cannot_be_saved(self, tmp_path):
        from daes.distribution import JumpReservoir

        model = make_model(embedding_options={"estimator": lambda feature: JumpReservoir(10, seed=feature)})
        with pytest.raises(ValueError, match=r"only a model of plain options can be saved, got .*function"):
            model.save_pretrained(tmp_path / "model")
        assert not (tmp_path / "model").exists()


class TestNoPickle:
    def test_neither_file_is_one(self, saved, monkeypatch):
        def refuse(*_, **__):
            raise AssertionError("pickle was used")

        for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
            monkeypatch.setattr(pickle, name, refuse)
        monkeypatch.setattr(torch, "save", refuse)
        monkeypatch.setattr(torch, "load", refuse)
        make_model(1).save_pretrained(saved)
        CTRModel.from_pretrained(saved)

    def test_a_pickle_in_the_place_of_weights_is_not_run(self, saved):
        class Bomb:
            def __reduce__(self):
                return Path.touch, (saved / "exploded",)

        replace_weights(saved, pickle.dumps(Bomb()))
        with pytest.raises(ValueError, match=rf"{WEIGHTS} is not a safetensors file"):
            CTRModel.from_pretrained(saved)
        assert not (saved / "exploded").exists()


class Stop(BaseException):
    """The process ends here: nothing after it runs, as far as the files can tell."""


class TestInterrupted:
    """Stopped before any system call that changes the folder, the old or the new model is there."""

    CALLS = ("open", "replace", "unlink")

    def stop_at(self, monkeypatch, number):
        """Count the calls that change the folder; stop before the given one, and let clean-up do nothing after it."""
        calls = []

        def stopping(original, changes):
            def call(path, *args, **named):
                if not changes(*args, **named):
                    return original(path, *args, **named)
                if number is not None and len(calls) >= number:
                    raise Stop
                calls.append(path)
                return original(path, *args, **named)

            return call

        for name in self.CALLS:
            changes = (lambda mode="r", *_, **__: "x" in mode) if name == "open" else (lambda *_, **__: True)
            monkeypatch.setattr(Path, name, stopping(getattr(Path, name), changes))
        return calls

    def save(self, model, folder, number):
        with pytest.MonkeyPatch.context() as patch:
            calls = self.stop_at(patch, number)
            try:
                model.save_pretrained(folder)
            except Stop:
                return len(calls), False
        return len(calls), True

    def test_there_is_always_one_whole_model(self, tmp_path):
        old, new = make_model(0), make_model(1)
        seen = []
        for number in range(20):
            folder = tmp_path / str(number)
            old.save_pretrained(folder)
            calls, done = self.save(new, folder, number)
            found = scores(CTRModel.from_pretrained(folder))
            assert found in (scores(old), scores(new))
            seen.append(found == scores(new))
            if done:
                break
        assert done
        assert calls >= 4
        # Old up to the instant that config.json is replaced, new from there on.
        assert seen == sorted(seen)
        assert not seen[0]
        assert seen[-1]
        assert seen.count(True) >= 2

    def test_a_second_interruption_keeps_what_the_first_left(self, tmp_path):
        old, new, newest = (make_model(seed) for seed in range(3))
        for first in range(5):
            for second in range(5):
                for third in (newest, new):
                    folder = tmp_path / f"{first}-{second}-{third is new}"
                    old.save_pretrained(folder)
                    self.save(new, folder, first)
                    between = scores(CTRModel.from_pretrained(folder))
                    self.save(third, folder, second)
                    assert scores(CTRModel.from_pretrained(folder)) in (between, scores(third))

    def test_the_next_save_clears_up(self, tmp_path):
        old, new = make_model(0), make_model(1)
        for number in range(5):
            folder = tmp_path / str(number)
            old.save_pretrained(folder)
            self.save(new, folder, number)
            make_model(2).save_pretrained(folder)
            assert files(folder) == [CONFIG, WEIGHTS]
            assert scores(CTRModel.from_pretrained(folder)) == scores(make_model(2))

    def test_without_an_old_model_there_is_none_or_the_new_one(self, tmp_path):
        for number in range(5):
            folder = tmp_path / str(number)
            self.save(make_model(), folder, number)
            if (folder / CONFIG).exists():
                assert scores(CTRModel.from_pretrained(folder)) == scores(make_model())
            else:
                with pytest.raises(FileNotFoundError, match=f"no saved model in {folder}"):
                    CTRModel.from_pretrained(folder)

    @pytest.mark.parametrize("stopped", [None, 4])
    @pytest.mark.parametrize("reads", range(5))
    def test_a_writer_between_two_looks_of_a_reader(self, saved, reads, stopped, monkeypatch):
        new, newest = make_model(1), make_model(2)
        if stopped is not None:  # before the last rename, which is then what happens between the looks
            self.save(new, saved, stopped)
        original, calls = Path.open, []

        def open_file(path, mode="r", *arguments):
            calls.extend([path] if mode == "rb" else [])
            if mode == "rb" and len(calls) == reads + 1:
                if stopped is None:
                    newest.save_pretrained(saved)
                else:
                    (waiting,) = saved.glob(f"{WEIGHTS}.*")
                    waiting.replace(saved / WEIGHTS)
            return original(path, mode, *arguments)

        monkeypatch.setattr(Path, "open", open_file)
        allowed = (make_model(), newest) if stopped is None else (new,)
        assert scores(CTRModel.from_pretrained(saved)) in [scores(model) for model in allowed]

    def test_a_reader_never_sees_a_mixture(self, saved):
        models = [make_model(seed) for seed in (0, 1)]
        allowed = [scores(model) for model in models]
        errors = []

        def write():
            try:
                for turn in range(30):
                    models[turn % 2].save_pretrained(saved)
            except Exception as error:
                errors.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        reads = 0
        try:
            while writer.is_alive() or not reads:
                assert scores(CTRModel.from_pretrained(saved)) in allowed
                reads += 1
        finally:
            writer.join()
        assert errors == []


class TestTrouble:
    @pytest.fixture
    def full_disk(self, monkeypatch):
        """Make the write of the given number fail: 0 is that of the weights, 1 that of the configuration."""

        def fill(failing):
            calls = iter(range(9))

            def sync(_):
                if next(calls) == failing:
                    raise OSError(28, "No space left on device")

            monkeypatch.setattr(os, "fsync", sync)
            monkeypatch.setattr("daes.storage.durable.sync_directory", lambda folder: None)

        return fill

    @pytest.mark.parametrize("failing", [0, 1])
    def test_a_full_disk_leaves_the_old_model_and_no_debris(self, saved, full_disk, failing):
        full_disk(failing)
        with pytest.raises(OSError, match="No space left"):
            make_model(1).save_pretrained(saved)
        assert files(saved) == [CONFIG, WEIGHTS]
        assert scores(CTRModel.from_pretrained(saved)) == scores(make_model())

    @pytest.mark.parametrize("failing", [0, 1])
    def test_a_full_disk_after_an_interruption(self, saved, full_disk, failing):
        digest = json.loads((saved / CONFIG).read_text())["sha256"]
        (saved / WEIGHTS).rename(saved / f"{WEIGHTS}.{digest}")  # stopped before the last rename
        full_disk(failing)
        with pytest.raises(OSError, match="No space left"):
            make_model().save_pretrained(saved)
        assert scores(CTRModel.from_pretrained(saved)) == scores(make_model())

    def test_an_error_after_the_decisive_instant(self, saved, monkeypatch):
        calls = iter([None, OSError(5, "Input/output error")])

        def sync(_):
            if (error := next(calls)) is not None:
                raise error

        monkeypatch.setattr("daes.storage.durable.sync_directory", sync)
        with pytest.raises(OSError, match="Input/output error"):
            make_model(1).save_pretrained(saved)
        assert scores(CTRModel.from_pretrained(saved)) == scores(make_model(1))

    def test_a_full_disk_without_an_old_model_leaves_nothing(self, tmp_path, full_disk):
        full_disk(1)
        with pytest.raises(OSError, match="No space left"):
            make_model().save_pretrained(tmp_path)
        assert files(tmp_path) == []

    def test_a_folder_that_cannot_be_written_to(self, saved, monkeypatch):
        def refuse(path, mode="r", *args, **named):
            raise PermissionError(13, "Permission denied", str(path))

        with monkeypatch.context() as patch:
            patch.setattr(Path, "open", refuse)
            with pytest.raises(PermissionError, match=rf"Permission denied: '{saved}/{WEIGHTS}"):
                make_model(1).save_pretrained(saved)
        assert scores(CTRModel.from_pretrained(saved)) == scores(make_model())

    @pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
    def test_a_read_only_folder(self, saved):
        saved.chmod(0o500)
        try:
            with pytest.raises(PermissionError, match=WEIGHTS):
                make_model(1).save_pretrained(saved)
            assert scores(CTRModel.from_pretrained(saved)) == scores(make_model())
        finally:
            saved.chmod(0o700)

    @pytest.mark.parametrize("below", ["", "model"])
    def test_a_file_in_the_place_of_the_folder(self, tmp_path, below):
        (tmp_path / "taken").write_text("a letter")
        path = tmp_path / "taken" / below
        with pytest.raises(NotADirectoryError, match=r"a model is saved as a folder; .*taken.* is a file"):
            make_model().save_pretrained(path)
        with pytest.raises(FileNotFoundError, match=r"no saved model in .*taken"):
            CTRModel.from_pretrained(path)
        assert (tmp_path / "taken").read_text() == "a letter"


class TestBadFiles:
    def test_no_folder(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=rf"no saved model in .*nosuch: it has no {CONFIG}"):
            CTRModel.from_pretrained(tmp_path / "nosuch")

    @pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
    def test_a_missing_file(self, saved, name):
        (saved / name).unlink()
        with pytest.raises(FileNotFoundError, match=rf"no saved model in {saved}: it has no {name}"):
            CTRModel.from_pretrained(saved)

    @pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
    def test_truncated_weights(self, saved, share):
        data = (saved / WEIGHTS).read_bytes()
        (saved / WEIGHTS).write_bytes(data[: int(len(data) * share)])
        with pytest.raises(ValueError, match=rf"{WEIGHTS} is truncated, damaged or not the file"):
            CTRModel.from_pretrained(saved)

    def test_a_flipped_bit(self, saved):
        data = bytearray((saved / WEIGHTS).read_bytes())
        data[-9] ^= 1
        (saved / WEIGHTS).write_bytes(data)
        with pytest.raises(ValueError, match="its SHA-256 differs"):
            CTRModel.from_pretrained(saved)

    def test_the_weights_of_another_model(self, saved, tmp_path_factory):
        other = tmp_path_factory.mktemp("other")
        make_model(1).save_pretrained(other)
        (saved / WEIGHTS).write_bytes((other / WEIGHTS).read_bytes())
        with pytest.raises(ValueError, match=f"not the file that {CONFIG} was saved with"):
            CTRModel.from_pretrained(saved)

    @pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
    def test_a_truncated_configuration(self, saved, share):
        data = (saved / CONFIG).read_bytes()
        (saved / CONFIG).write_bytes(data[: int(len(data) * share)])
        with pytest.raises(ValueError, match=f"{CONFIG} is not whole, valid JSON"):
            CTRModel.from_pretrained(saved)

    def test_a_configuration_that_is_not_text(self, saved):
        (saved / CONFIG).write_bytes(b"\xff\xfe\xfd")
        with pytest.raises(ValueError, match=f"{CONFIG} is not whole, valid JSON"):
            CTRModel.from_pretrained(saved)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda c: c.update(format="other"), 'must have "format": "daes.model"'),
            (lambda c: c.update(version=VERSION + 1), f"has version {VERSION + 1}, this release reads {VERSION}"),
            (lambda c: c.pop("version"), f"has version None, this release reads {VERSION}"),
            (lambda c: c.pop("schema"), "must have an object called 'schema', got None"),
            (lambda c: c.update(model=[1]), r"must have an object called 'model', got \[1\]"),
            (lambda c: c.pop("sha256"), "must have 64 hexadecimal digits as 'sha256', got None"),
            (lambda c: c.update(sha256="../../x"), "must have 64 hexadecimal digits as 'sha256', got '../../x'"),
            (lambda c: c["schema"].update(colour=1), "has no valid schema: .*\\['colour'\\] are unknown"),
            (lambda c: c["schema"].update(numerical=["city"]), "has no valid schema: .*'city'"),
            (lambda c: c["model"].update(embedding="daisy"), "does not describe a model: .*got 'daisy'"),
            (lambda c: c["model"].update(backbone="deep"), "does not describe a model: .*got 'deep'"),
            (lambda c: c["model"].update(colour="red"), "does not describe a model: .*'colour'"),
            (
                lambda c: c["model"].update(dim="4"),
                "does not describe a model: dim must be a positive integer, got '4'",
            ),
            (lambda c: c["model"].update(sizes={"town": 3}), "does not describe a model: sizes .*town"),
            (lambda c: c["model"].update(embedding_options={"colour": 1}), "does not describe a model: .*'colour'"),
            (lambda c: c["model"].pop("l2"), "does not describe a whole model: it lacks l2"),
        ],
    )
    def test_a_tampered_configuration_is_named(self, saved, change, message):
        edit_config(saved, change)
        with pytest.raises(ValueError, match=f"{saved / CONFIG} {message}"):
            CTRModel.from_pretrained(saved)

    @pytest.mark.parametrize(
        "change",
        [
            lambda c: c["model"].update(l2=0.5),
            lambda c: c["schema"].update(numerical=c["schema"]["numerical"][::-1]),
            lambda c: c["model"]["embedding_options"].update(beta=0.9),
            lambda c: c.pop("config_sha256"),
        ],
    )
    def test_a_changed_configuration_is_noticed(self, saved, change):
        edit_config(saved, change, seal=dict)
        with pytest.raises(ValueError, match=f"{CONFIG} was changed after the model was saved: its SHA-256 differs"):
            CTRModel.from_pretrained(saved)

    def test_another_layout_is_the_same_configuration(self, saved):
        edit_config(saved, lambda c: None, seal=lambda c: dict(reversed(c.items())))
        assert CTRModel.from_pretrained(saved).dim == 4

    def test_a_dimension_that_no_memory_holds(self, saved):
        edit_config(saved, lambda c: c["model"].update(dim=10**13))
        with pytest.raises(
            ValueError, match=r"does not describe a model: not enough memory: [\d,.]+ GiB were asked for"
        ):
            CTRModel.from_pretrained(saved)

    @pytest.mark.parametrize("text", ["[]", "null", "3"])
    def test_a_configuration_that_is_no_object(self, saved, text):
        (saved / CONFIG).write_text(text)
        with pytest.raises(ValueError, match=f"{CONFIG} must hold a JSON object"):
            CTRModel.from_pretrained(saved)

    @pytest.mark.parametrize(
        "change",
        [
            lambda c: c["model"].update(dim=5),
            lambda c: c["model"].update(backbone="ipnn"),
            lambda c: c["model"]["sizes"].update(city=21),
            lambda c: c["model"]["embedding_options"].update(modulation="tran"),
        ],
    )
    def test_a_configuration_for_other_weights(self, saved, change):
        edit_config(saved, change)
        with pytest.raises(ValueError, match=rf"{saved / WEIGHTS} does not fit {CONFIG} beside it"):
            CTRModel.from_pretrained(saved)

    @pytest.mark.parametrize(
        "change",
        [
            lambda state: state.pop("categorical.weight"),
            lambda state: state.update(more=torch.ones(1)),
            lambda state: state.update({"numerical._extra_state": torch.zeros(7, dtype=torch.uint8)}),
            lambda state: state.update({"numerical._extra_state": torch.zeros(0, dtype=torch.uint8)}),
        ],
    )
    def test_weights_of_other_tensors(self, saved, change):
        state = load_file(saved / WEIGHTS)
        change(state)
        replace_weights(saved, save(state))
        with pytest.raises(ValueError, match=rf"{saved / WEIGHTS} does not fit {CONFIG} beside it"):
            CTRModel.from_pretrained(saved)


class TestOtherSchema:
    def test_the_same_columns_with_another_label_or_none(self, saved):
        for schema in (SCHEMA, Schema(None, SCHEMA.numerical, SCHEMA.categorical, time="at")):
            assert CTRModel.from_pretrained(saved, schema=schema).schema == SCHEMA

    @pytest.mark.parametrize(
        ("numerical", "categorical", "message"),
        [
            (("price",), SCHEMA.categorical, "its numerical columns lack größe"),
            (("price", "größe", "age"), SCHEMA.categorical, "its numerical columns add age"),
            (("price", "age"), SCHEMA.categorical, "its numerical columns lack größe and add age"),
            (("größe", "price"), SCHEMA.categorical, "its numerical columns come in another order"),
            (SCHEMA.numerical, ("city", "town"), "its categorical columns lack device and add town"),
            (SCHEMA.numerical, ("device", "city"), "its categorical columns come in another order"),
        ],
    )
    def test_other_columns_are_named(self, saved, numerical, categorical, message):
        with pytest.raises(ValueError, match=f"schema must be the one the model was saved with; {message}"):
            CTRModel.from_pretrained(saved, schema=Schema("click", numerical, categorical))
