import json
from contextlib import suppress
from time import monotonic

import pytest

from daes.experiments.log import RESULTS
from daes.paper import Execution, OutOfTimeError
from daes.paper import pieces as pieces_module
from daes.paper.pieces import run_pieces
from daes.storage.lock import LockHeldError, WriterLock


def square(shared, piece, note):
    if piece["number"] < 0:
        raise ValueError("it is negative")
    return {"square": piece["number"] ** 2}


def pieces(*numbers):
    return [{"number": number} for number in numbers]


def lines(folder):
    return [json.loads(line) for line in (folder / RESULTS).read_text().splitlines()]


def name(piece):
    return f"number {piece['number']}"


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_are_in_the_order_of_the_pieces_and_kept(tmp_path, jobs):
    execution = Execution(tmp_path, jobs=jobs)
    assert run_pieces(square, pieces(3, 1, 2), execution, name) == [{"square": 9}, {"square": 1}, {"square": 4}]
    before = (tmp_path / RESULTS).read_text()
    assert run_pieces(square, pieces(2, 3), execution, name) == [{"square": 4}, {"square": 9}]
    assert (tmp_path / RESULTS).read_text() == before


def test_a_line_cut_short_is_done_again(tmp_path):
    execution = Execution(tmp_path)
    run_pieces(square, pieces(1, 2), execution, name)
    path = tmp_path / RESULTS
    path.write_text(path.read_text()[:-10])
    assert run_pieces(square, pieces(3, 2, 1), execution, name) == [{"square": 9}, {"square": 4}, {"square": 1}]
    assert [line["piece"]["number"] for line in lines(tmp_path)] == [1, 3, 2]  # none is glued to what was cut


def test_pieces_of_other_code_are_done_again(tmp_path, monkeypatch):
    run_pieces(square, pieces(1, 2), Execution(tmp_path), name)
    monkeypatch.setattr(pieces_module, "code_fingerprint", lambda *more: "other")
    with pytest.raises(OutOfTimeError, match="0 of 2 pieces are done"):
        run_pieces(square, pieces(1, 2), Execution(tmp_path, deadline=monotonic()), name)
    run_pieces(square, pieces(1, 2), Execution(tmp_path), name)
    assert len((tmp_path / RESULTS).read_text().splitlines()) == 4


def test_progress_counts_the_pieces_of_this_run(tmp_path):
    run_pieces(square, pieces(1, 2, 3), Execution(tmp_path), name)
    notes = []
    run_pieces(square, pieces(3, 4), Execution(tmp_path, note=notes.append), name)
    assert notes == ["2/2 number 4"]


def test_one_writer_at_a_time(tmp_path):
    lock = WriterLock(tmp_path / "lock")
    lock.acquire()
    with pytest.raises(LockHeldError, match="one writer at a time"):
        run_pieces(square, pieces(1), Execution(tmp_path), name)
    lock.release()
    for numbers in ((1, -1), (1, 2)):  # let go after an error as well
        with suppress(RuntimeError):
            run_pieces(square, pieces(*numbers), Execution(tmp_path), name)
    assert [line["piece"]["number"] for line in lines(tmp_path) if "found" in line] == [1, 2]


def test_an_error_is_named_and_the_others_are_kept(tmp_path):
    with pytest.raises(RuntimeError, match=r"1 of 3 pieces failed: number -1: ValueError: it is negative"):
        run_pieces(square, pieces(2, -1, 3), Execution(tmp_path), name)
    assert ["error" in line for line in lines(tmp_path)] == [False, True, False]


@pytest.mark.parametrize("jobs", [1, 2])
def test_past_the_deadline_nothing_is_begun(tmp_path, jobs):
    run_pieces(square, pieces(1), Execution(tmp_path), name)
    with pytest.raises(OutOfTimeError, match="1 of 3 pieces are done"):
        run_pieces(square, pieces(1, 2, 3), Execution(tmp_path, jobs=jobs, deadline=monotonic()), name)
