"""A topic of Apache Kafka, or of a broker with the same protocol, read from given offsets on."""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from daes.extras import require
from daes.stream.messages import BrokerError, Consumer, Message, Offsets, next_offset

_log = logging.getLogger("daes.stream")
_CONNECT_SECONDS = 5.0
_BETWEEN_CHECKS = 0.2
_CLOCK_TOLERANCE = 2_000_000_000
_BETWEEN_PARTITION_CHECKS = 60.0
_SETTINGS = "DAES_KAFKA_CONFIG"


class KafkaConsumer(Consumer):
    """Reads all partitions of a topic from given offsets; nothing is committed to the group.

    librdkafka reads at most 64 MB ahead and then waits, so that a slow reader delays only itself. Partitions that are
    added later are found within a minute and read from their start.

    Args:
        servers: bootstrap brokers, with ports if they are not 9092.
        topic: the topic, which must exist.
        group: the consumer group that brokers see; no offset is stored in it.
        start: "first" for all messages that the topic has, "new" for later ones only.
    """

    def __init__(self, servers: Sequence[str], topic: str, *, group: str = "daes", start: str = "first") -> None:
        self._kafka = require("confluent_kafka")
        self.name = f"kafka:{topic}"
        self._topic, self._start = topic, start
        self._where = ",".join(servers)
        self._failure = ""
        settings = {
            "bootstrap.servers": self._where,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": 65_536,
            "error_cb": self._note,
            "log_level": 2,
            **read_settings(),
        }
        try:
            self._consumer = self._kafka.Consumer(settings)
            # Queries through the consumer that reads would wait behind its requests for messages.
            self._asking = self._kafka.Consumer(settings)
        except self._kafka.KafkaException as error:
            raise BrokerError(f"Kafka's client refuses its settings: {error.args[0].str()}") from error
        self._positions: Offsets = {}
        self._sent: Offsets = {}
        self._ends: Offsets = {}
        self._complete: Offsets = {}
        self._checked = self._partitions_checked = 0.0
        self._partitions()

    def start(self) -> Offsets:
        place = 1 if self._start == "new" else 0
        return {partition: self._watermarks(partition)[place] for partition in self._partitions()}

    def seek(self, offsets: Mapping[int, int]) -> None:
        """Continue from these offsets; a partition that is not among them is read from its start."""
        self._positions = {}
        for partition in self._partitions():
            first, end = self._watermarks(partition)
            wanted = int(offsets.get(partition, first))
            self._positions[partition] = next_offset(f"partition {partition} of {self.name}", wanted, first, end)
        self._sent, self._complete = {}, {}
        self._assign()

    def poll(self, most: int, seconds: float) -> list[Message]:
        self._find_new_partitions()
        messages = []
        first = self._consumer.poll(seconds)  # `consume` would wait for all of them
        for item in [] if first is None else [first, *self._consumer.consume(most - 1, 0.0)]:
            error = item.error()
            if error is not None:
                reset = error.code() == self._kafka.KafkaError._AUTO_OFFSET_RESET
                if reset or not error.retriable():
                    _log.warning("%s: %s%s", self.name, error.str(), "" if reset else "; trying again")
                continue
            partition, offset, sent = item.partition(), item.offset(), item.timestamp()[1] * 1_000_000
            self._positions[partition] = offset + 1
            self._sent[partition] = max(sent, self._sent.get(partition, 0))
            messages.append(Message(partition, offset, sent, item.value() or b""))
        return messages

    def lag(self) -> int | None:
        behind = 0
        for partition, position in self._positions.items():
            topic = self._kafka.TopicPartition(self._topic, partition)
            _, cached = self._consumer.get_watermark_offsets(topic, cached=True)
            end = cached if cached >= 0 else self._ends.get(partition)
            if end is None:
                return None
            behind += max(0, int(end) - position)
        return behind

    def complete_until(self) -> int:
        """See `Consumer`; assumes that a message takes at most two seconds to reach the broker."""
        if time.monotonic() - self._checked >= _BETWEEN_CHECKS:
            self._checked = time.monotonic()
            for partition in list(self._positions):
                asked = time.time_ns()
                try:
                    self._ends[partition] = self._watermarks(partition)[1]
                except BrokerError:
                    continue
                if self._ends[partition] <= self._positions[partition]:
                    self._complete[partition] = asked - _CLOCK_TOLERANCE
        done = [max(self._complete.get(one, 0), self._sent.get(one, 0) - 1) for one in self._positions]
        return min(done, default=0)

    def close(self) -> None:
        self._consumer.close()
        self._asking.close()

    def _assign(self) -> None:
        make = self._kafka.TopicPartition
        self._consumer.assign([make(self._topic, one, offset) for one, offset in self._positions.items()])

    def _partitions(self) -> list[int]:
        kafka = self._kafka
        try:
            about = self._asking.list_topics(self._topic, timeout=_CONNECT_SECONDS).topics[self._topic]
        except kafka.KafkaException as error:
            raise BrokerError(self._unreachable(error.args[0].str())) from error
        if about.error is not None:
            if about.error.code() == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise BrokerError(f"there is no topic {self._topic!r} at {self._where}")
            raise BrokerError(f"the topic {self._topic!r} cannot be read: {about.error.str()}")
        self._partitions_checked = time.monotonic()
        return sorted(about.partitions)

    def _unreachable(self, reason: str) -> str:
        reason = self._failure or reason
        if "uthenticat" in reason or "SASL" in reason or "SSL" in reason:
            return (
                f"the Kafka broker at {self._where} refuses the login: {reason}; {_SETTINGS} names a file of settings"
            )
        return f"there is no Kafka broker at {self._where}: {reason}"

    def _find_new_partitions(self) -> None:
        if time.monotonic() - self._partitions_checked < _BETWEEN_PARTITION_CHECKS:
            return
        self._partitions_checked = time.monotonic()
        try:
            new = {one: self._watermarks(one)[0] for one in self._partitions() if one not in self._positions}
        except BrokerError:
            return
        if new:
            self._positions |= new
            self._assign()

    def _watermarks(self, partition: int) -> tuple[int, int]:
        try:
            first, end = self._asking.get_watermark_offsets(
                self._kafka.TopicPartition(self._topic, partition), timeout=_CONNECT_SECONDS
            )
        except self._kafka.KafkaException as error:
            raise BrokerError(f"the Kafka broker does not answer: {error.args[0].str()}") from error
        return int(first), int(end)

    def _note(self, error: Any) -> None:
        self._failure = str(error.str())


def read_settings() -> dict[str, str]:
    """Settings of librdkafka (`security.protocol=SASL_SSL`, one per line) from the file named by DAES_KAFKA_CONFIG."""
    path = os.environ.get(_SETTINGS)
    if not path:
        return {}
    settings = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if text and not text.startswith("#"):
            name, equals, value = text.partition("=")
            if not equals:
                raise ValueError(f"a line of {path} must be name=value, got {name!r}")
            settings[name.strip()] = value.strip()
    return settings
