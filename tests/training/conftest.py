from contextlib import contextmanager

import pytest


@pytest.fixture
def interrupted():
    """A context that yields a callback with which a run fails after a number of rows or batches."""

    class Interruption(Exception):
        pass

    @contextmanager
    def interrupted(*, rows=None, batches=None):
        def interrupt(trainer, *_):
            if trainer.rows == rows or trainer.batches == batches:
                raise Interruption

        with pytest.raises(Interruption):
            yield interrupt

    return interrupted
