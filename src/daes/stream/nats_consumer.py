"""A stream of NATS JetStream, read from a sequence number on."""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from daes.extras import require
from daes.stream.messages import BrokerError, Consumer, Message, Offsets, next_offset

_log = logging.getLogger("daes.stream")
_T = TypeVar("_T")
_CONNECT_SECONDS = 5.0
_FETCH = 1024
_IDLE_SECONDS = 300.0
_BETWEEN_CHECKS = 2.0
_CLOCK_TOLERANCE = 200_000_000
_LOGIN = {"NATS_CREDS": "user_credentials", "NATS_USER": "user", "NATS_PASSWORD": "password", "NATS_TOKEN": "token"}
"""Environment variables for the login, and the options of `nats.connect` that they set."""


class NatsConsumer(Consumer):
    """Reads a stream through its own pull consumer, which the server deletes when it is no longer used.

    Messages are sent on request, so that a slow reader delays only itself. The consumer numbers what it delivers: if a
    number is missing, the connection was lost or the server has deleted the consumer, a new one begins at the next
    message. Nothing is acknowledged and nothing is stored on the server.

    Args:
        servers: hosts, with ports if they are not 4222.
        stream: the name of the stream, which must exist.
        subject: only messages of this subject; wildcards are those of NATS.
        start: "first" for all messages that the stream has, "new" for later ones only.
    """

    def __init__(
        self, servers: Sequence[str], stream: str, *, subject: str | None = None, start: str = "first"
    ) -> None:
        self._nats = require("nats")
        self.name = f"nats:{stream}" + (f"/{subject}" if subject else "")
        self._stream, self._subject, self._start = stream, subject, start
        self._servers = [f"nats://{server}" for server in servers]
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="daes-nats", daemon=True).start()
        self._lock = threading.Lock()
        self._subscription: Any = None
        self._next = 1
        self._delivered = 0
        self._pending: int | None = None
        self._last_sent = 0
        self._complete = 0
        self._checked = 0.0
        self._connection = self._call(self._connect())

    def start(self) -> Offsets:
        """The sequence number of the first message to read; a stream has one partition, 0."""
        state = self._info().state
        return {0: int(state.last_seq) + 1 if self._start == "new" else max(1, int(state.first_seq))}

    def seek(self, offsets: Mapping[int, int]) -> None:
        with self._lock:
            state = self._info().state
            start = next_offset(self.name, int(offsets[0]), int(state.first_seq), int(state.last_seq) + 1)
            self._drop()
            self._next = start
            self._pending, self._last_sent, self._complete = None, 0, 0

    def poll(self, most: int, seconds: float) -> list[Message]:
        with self._lock:
            found = self._fetch(min(most, _FETCH), max(seconds, 0.02))
            messages = []
            for item in found:
                about = item.metadata
                if about.sequence.consumer != self._delivered + 1:
                    self._drop()  # a message was lost: begin again with the next one
                    break
                self._delivered += 1
                self._next, self._pending = int(about.sequence.stream) + 1, int(about.num_pending)
                self._last_sent = int(about.timestamp.timestamp() * 1e9)
                messages.append(Message(0, int(about.sequence.stream), self._last_sent, bytes(item.data)))
            return messages

    def lag(self) -> int | None:
        return self._pending

    def complete_until(self) -> int:
        """See `Consumer`; assumes that the server's clock is within 0.2 seconds of this machine's."""
        with self._lock:
            asked = time.time_ns()
            if self._subscription is not None and not self._pending:
                with suppress(Exception):
                    about = self._call(self._subscription.consumer_info(), 5.0)
                    self._pending = int(about.num_pending)
                    if not self._pending and int(about.delivered.consumer_seq) == self._delivered:
                        self._complete = asked - _CLOCK_TOLERANCE
            return max(self._complete, self._last_sent - 1)

    def close(self) -> None:
        with self._lock, suppress(Exception):
            self._drop()
            self._call(self._connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _call(self, work: Coroutine[Any, Any, _T], seconds: float = 30.0) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    async def _connect(self) -> Any:
        refused: list[str] = []
        all_refused = asyncio.Event()

        async def note(error: BaseException) -> None:
            refused.append(str(error))
            if len(refused) >= len(self._servers):
                all_refused.set()

        login = {option: os.environ[name] for name, option in _LOGIN.items() if os.environ.get(name)}
        connecting = asyncio.ensure_future(
            self._nats.connect(
                self._servers,
                error_cb=note,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.5,
                connect_timeout=_CONNECT_SECONDS,
                **login,
            )
        )
        # The client would retry forever: right if a server is lost, wrong if it was never there.
        giving_up = asyncio.ensure_future(all_refused.wait())
        await asyncio.wait([connecting, giving_up], timeout=_CONNECT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        giving_up.cancel()
        if connecting.done() and connecting.exception() is None:
            return connecting.result()
        if connecting.done():
            refused.append(str(connecting.exception()))
        connecting.cancel()
        where = ", ".join(server.removeprefix("nats://") for server in self._servers)
        if any("uthorization" in reason for reason in refused):
            raise BrokerError(
                f"the NATS server at {where} refuses the login: set NATS_USER and NATS_PASSWORD, NATS_TOKEN, or "
                "NATS_CREDS (a file)"
            )
        reason = next(filter(None, refused), "no answer")
        raise BrokerError(f"there is no NATS server at {where}: {reason}")

    def _info(self) -> Any:
        errors = self._nats.js.errors
        try:
            return self._call(self._connection.jetstream().stream_info(self._stream))
        except errors.NotFoundError as error:
            raise BrokerError(f"the NATS server has no stream {self._stream!r}{self._others()}") from error
        except (errors.ServiceUnavailableError, self._nats.errors.NoRespondersError) as error:
            raise BrokerError("JetStream is not enabled on the NATS server (nats-server -js)") from error
        except (self._nats.errors.Error, TimeoutError) as error:
            raise BrokerError(f"the NATS server does not answer: {error or type(error).__name__}") from error

    def _others(self) -> str:
        with suppress(Exception):
            streams = self._call(self._connection.jetstream().streams_info())
            return "; there are: " + (", ".join(stream.config.name for stream in streams) or "none")
        return ""

    def _drop(self) -> None:
        """Drop the consumer; the next fetch begins a new one."""
        if self._subscription is not None:
            with suppress(Exception):
                self._call(self._subscription.unsubscribe(), 1.0)
            self._subscription = None

    def _fetch(self, most: int, seconds: float) -> list[Any]:
        errors = self._nats.errors
        try:
            if self._subscription is None:
                self._subscription = self._call(self._subscribe())
                self._delivered = 0
            return self._call(self._subscription.fetch(most, timeout=seconds), seconds + 5)
        except (errors.TimeoutError, TimeoutError):
            self._check_consumer()
            return []
        except (errors.Error, OSError) as error:
            _log.warning("%s: %s; trying again", self.name, error or type(error).__name__)
            self._drop()
            time.sleep(min(seconds, 0.5))
            return []

    async def _subscribe(self) -> Any:
        api = require("nats.js.api")
        config = api.ConsumerConfig(
            deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self._next,
            ack_policy=api.AckPolicy.NONE,
            filter_subject=self._subject,
            inactive_threshold=_IDLE_SECONDS,
            mem_storage=True,
            num_replicas=1,
        )
        stream = self._connection.jetstream()
        made = await stream.add_consumer(self._stream, config)
        return await stream.pull_subscribe_bind(made.name, stream=self._stream)

    def _check_consumer(self) -> None:
        """After some time without messages, drop the consumer if the server has lost it or some of its messages."""
        if time.monotonic() - self._checked < _BETWEEN_CHECKS:
            return
        self._checked = time.monotonic()
        try:
            about = self._call(self._subscription.consumer_info(), 5.0)
            self._pending = int(about.num_pending)
            if int(about.delivered.consumer_seq) != self._delivered:
                self._drop()
        except Exception as error:
            _log.info("%s: starting a new consumer: %s", self.name, error)
            self._drop()
