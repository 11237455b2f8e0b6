"""Addresses of topics: `nats://host:4222/stream?subject=ads.clicks` and `kafka://host:9092,other:9092/topic`."""

from typing import Any
from urllib.parse import parse_qsl, unquote

from daes.stream.messages import Consumer

_OPTIONS = {"nats": ("subject", "start"), "kafka": ("group", "start")}
_STARTS = ("first", "new")


def parse_url(url: str) -> tuple[str, list[str], str, dict[str, str]]:
    """Scheme, servers, topic and options of an address; an error says what is wrong with it.

    Options are `start` ("first": all messages that the broker still has, or "new"), `subject` (NATS) and `group`
    (Kafka).

    >>> parse_url("nats://localhost/ADS?subject=ads.clicks")
    ('nats', ['localhost'], 'ADS', {'subject': 'ads.clicks'})
    """
    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    servers, _, topic = place.partition("/")
    example = "nats://localhost:4222/stream" if scheme == "nats" else "kafka://localhost:9092/topic"
    if "@" in servers:
        raise ValueError(
            f"a {scheme} address must not contain a user or password, because it is stored with the run; docs/live.md "
            "explains how to log in"
        )
    if scheme not in _OPTIONS or not servers or not topic or "/" in topic:
        raise ValueError(f"a topic must be written as {example}, got {url}")
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in options.items():
        if name not in _OPTIONS[scheme]:
            raise ValueError(f"a {scheme} address takes {' and '.join(_OPTIONS[scheme])} after the ?, got {name!r}")
        if not value:
            raise ValueError(f"{name} must not be empty: {url}")
        if name == "start" and value not in _STARTS:
            raise ValueError(f"start must be first or new, got {url}")
    return scheme, servers.split(","), unquote(topic), options


def is_broker(what: Any) -> bool:
    """Whether something is the address of a topic.

    >>> is_broker("kafka://localhost/clicks"), is_broker("s3://bucket/clicks.parquet")
    (True, False)
    """
    return isinstance(what, str) and what.partition("://")[0] in _OPTIONS and "://" in what


def connect(url: str) -> Consumer:
    """A client connected to the topic."""
    scheme, servers, topic, options = parse_url(url)
    if scheme == "nats":
        from daes.stream.nats_consumer import NatsConsumer

        return NatsConsumer(servers, topic, **options)
    from daes.stream.kafka_consumer import KafkaConsumer

    return KafkaConsumer(servers, topic, **options)
