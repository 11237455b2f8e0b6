"""A second thread: who does what, and that it never waits for itself."""

import threading

import pytest
import torch

from daes.native import threads


@pytest.fixture
def second(monkeypatch):
    """A second thread of the test's own, for batches of any size."""
    monkeypatch.setattr(threads, "MANY_ROWS", 1)
    monkeypatch.setattr(threads, "_pools", {})
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    for pool in threads._pools.values():
        pool.shutdown(cancel_futures=True)


def name(part):
    return part, threading.current_thread().name


def test_parts_are_shared(second):
    (first, here), (other, there) = threads.map_parts(10, name, [("a",), ("b",)])
    assert (first, other) == ("a", "b")
    assert here == threading.current_thread().name
    assert there.startswith("daes-step")


def test_the_second_thread_does_its_own_parts_at_once(second):
    """As a callback `apart` of the trainer does that scores its batch with a backbone of two halves."""
    found = []
    work = threads.submit(10, lambda: found.extend(threads.map_parts(10, name, [("a",), ("b",)])))
    try:
        work.result(timeout=20)
    finally:
        next(iter(threads._pools.values())).shutdown(wait=False, cancel_futures=True)
    assert [part for part, _ in found] == ["a", "b"]
    assert {there.startswith("daes-step") for _, there in found} == {True}
