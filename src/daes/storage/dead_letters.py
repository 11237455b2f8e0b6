"""A file of the messages that could not be read, each once, with its position and the reason."""

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daes.storage.durable import write_bytes
from daes.stream.messages import DeadLetter


class DeadLetters:
    """A file of JSON lines to which dead letters are appended.

    A line is written when the message is read, possibly before the checkpoint that covers it. Therefore `open` removes
    the lines from a position on, whose messages are read again. So each letter is in the file once, even if the process
    is killed.

    >>> import tempfile
    >>> letters = DeadLetters(Path(tempfile.mkdtemp()) / "dead_letters.jsonl")
    >>> letters.open({"clicks": {0: 0}})
    >>> letters.add(DeadLetter("clicks", 0, 7, 0, "it is not JSON", b"x"))
    >>> letters.count
    1
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.count = 0
        self._lock = threading.Lock()  # each topic is read by a thread of its own
        self._file: Any = None

    def open(self, positions: Mapping[str, Mapping[int, int]]) -> None:
        """Continue the file without the letters from these offsets on, by topic and partition."""
        self.close()
        kept = []
        for line in self.path.read_bytes().split(b"\n") if self.path.exists() else ():
            try:
                letter = json.loads(line)
                before = letter["offset"] < positions[letter["topic"]].get(letter["partition"], 0)
            except (ValueError, KeyError, TypeError):
                continue  # a line cut off when the process was killed, or of a topic that is not read
            if before:
                kept.append(line + b"\n")
        if self.path.exists():
            write_bytes(self.path, b"".join(kept))
        self.count = len(kept)

    def add(self, letter: DeadLetter) -> None:
        with self._lock:
            if self._file is None:
                self._file = self.path.open("ab", buffering=0)
            self._file.write(letter.to_json().encode() + b"\n")
            self.count += 1

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def state_dict(self) -> dict[str, Any]:
        """Empty, since the position determines which letters to keep; makes the file durable before a checkpoint."""
        if self._file is not None:
            os.fsync(self._file.fileno())
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to do, see `open`."""
