import json
import re
import threading
import time
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from daes.extras import MissingExtraError
from daes.stream.batch import KeyedBatch
from daes.stream.broker_url import connect
from daes.stream.cursor import SourceError
from daes.stream.dataset import Dataset
from daes.stream.messages import BrokerError, format_offsets, parse_offsets
from daes.stream.prefetch import Prefetch
from daes.stream.schema import Schema

SCHEMA = Schema("click", ("price",), ("city",))


def message(number, **more):
    return json.dumps({"click": number % 2, "price": number, "city": f"city {number % 3}", **more}).encode()


def arrow(numbers, **more):
    columns = {
        "click": [number % 2 for number in numbers],
        "price": [float(number) for number in numbers],
        "city": [f"city {number % 3}" for number in numbers],
        **more,
    }
    table = pa.table({name: values for name, values in columns.items() if values is not None})
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return stream.getvalue().to_pybytes()


def read(url, rows, batch_size=4, position=None, schema=SCHEMA, **options):
    """So many rows in batches, the dead letters met, and the dataset."""
    data = Dataset.open(url, schema=schema, limit=rows, **options)
    letters = []
    data.source.on_dead_letter = letters.append
    if position is not None:
        data.seek(position)
    return [batch for batch in data.iter_batches(schema, batch_size) if len(batch)], letters, data


def prices(batches):
    return [price for batch in batches for price in batch.numerical[:, 0].tolist()]


def test_objects_are_rows_and_the_schema_is_inferred(broker):
    url = broker.make()
    broker.send(url, [message(number) for number in range(10)])
    data = Dataset.open(url, max_wait=0.2)
    assert data.schema == SCHEMA
    assert data.is_live
    assert data.name in url
    batches, letters, data = read(url, 10)
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert prices(batches) == list(range(10))
    assert batches[0].label.tolist() == [0, 1, 0, 1]
    assert letters == []
    expected = next(iter(Dataset.open(pa.table({"click": [0], "price": [1.0], "city": ["city 0"]})).batches(1)))
    assert batches[0].categorical[0, 0] == expected.categorical[0, 0]


def test_arrow_messages_have_many_rows_and_any_position_can_be_gone_back_to(broker):
    url = broker.make()
    broker.send(url, [arrow(range(5)), message(5), b"poison", arrow([6]), arrow(range(7, 12)), arrow([])])
    whole, letters, _ = read(url, 12, 5)
    assert prices(whole) == list(range(12))
    assert [(letter.reason[:14], letter.data) for letter in letters] == [("it is not JSON", b"poison")]
    for stop in range(1, 12):
        first, before, data = read(url, stop, 1)
        rest, after, _ = read(url, 12, 5, data.position())
        assert prices(first) + prices(rest) == list(range(12))
        # A letter may be met before the position covers it; it is then met again.
        offsets, _ = parse_offsets(str(data.position()["offsets"]))
        assert len([letter for letter in before if letter.offset < offsets[0]]) + len(after) == 1


def test_a_message_that_cannot_be_read_is_a_dead_letter_and_stops_nothing(broker):
    reasons = {
        b"{": "it is not JSON: Expecting property name enclosed in double quotes at character 1",
        b"\xfe\xff\x00": "it is not JSON: ",
        b"": "it is not JSON: Expecting value at character 0",
        b"[1, 2]": "it must be a JSON object, got a list",
        b'{"price": 1, "city": "Bern"}': "label column 'click' must hold 0 and 1 only, got null",
        b'{"click": 2, "price": 1}': "label column 'click' must hold 0 and 1 only, got 2",
        b'{"click": 1, "price": "7"}': "column 'price' must hold numbers, got \"7\"",
        b'{"click": 1, "price": 1' + b"0" * 400 + b"}": "column 'price' must hold numbers, got 10000",
        b'{"click": 1, "city": ["Bern"]}': "column 'city' must hold categories, got [\"Bern\"]",
        b'{"click": 1, "prize": 3}': "it has none of the columns price, city",
        b"\xff\xff\xff\xff broken": "it is not an Arrow IPC stream: ",
        arrow([1], click=None): "there is no column 'click'",
        arrow([1], click=[3]): "label column 'click' must hold 0 and 1 only; row 0 is 3",
        arrow([1], price=["7"]): "column 'price' must hold numbers; it is of type string",
        arrow([1], price=None, city=None): "it has none of the columns price, city",
    }
    url = broker.make()
    broker.send(url, [message(1), *reasons, message(2)])
    batches, letters, _ = read(url, 2)
    assert prices(batches) == [1, 2]
    found = {letter.data: letter.reason for letter in letters}
    assert list(found) == list(reasons)
    for payload, reason in reasons.items():
        assert found[payload].startswith(reason), (found[payload], reason)
    assert [letter.offset - letters[0].offset for letter in letters] == list(range(len(reasons)))


def test_a_dead_letter_as_json_is_text_where_it_can_be(broker):
    url = broker.make()
    broker.send(url, [b"\xfe", "né".encode(), message(1)])
    _, letters, _ = read(url, 1)
    first, second = (json.loads(letter.to_json()) for letter in letters)
    assert first["payload_base64"] == "/g=="
    assert second["payload"] == "né"
    assert second["reason"].startswith("it is not JSON")
    assert (second["offset"] - first["offset"], second["partition"]) == (1, 0)


def test_columns_that_are_not_there_are_missing_and_others_are_ignored(broker):
    url = broker.make()
    broker.send(url, [b'{"click": true, "price": null, "city": 3, "other": {}}', b'{"click": 0, "city": ""}'])
    batches, letters, _ = read(url, 2)
    assert letters == []
    assert batches[0].label.tolist() == [1, 0]
    assert np.isnan(batches[0].numerical).all()
    assert (batches[0].categorical[:, 0] == 0).tolist() == [False, True]


def test_time_weight_and_labels_of_words(broker):
    url = broker.make()
    row = {"bought": "yes", "price": 1, "at": "2024-01-05T10:00:00.5+01:00", "w": 2}
    bad = ({"bought": "perhaps"}, {"w": -1}, {"at": "noon"}, {"w": 1e39})
    broker.send(url, [json.dumps({**row, **change}).encode() for change in ({}, *bad)])
    broker.send(url, [json.dumps({**row, "bought": False, "at": 7}).encode()])
    schema = Schema("bought", ("price",), (), time="at", weight="w")
    batches, letters, _ = read(url, 2, 8, schema=schema, label_map={"yes": 1, "false": 0})
    assert batches[0].label.tolist() == [1, 0]
    assert batches[0].time.tolist() == [1704445200500000000, 7]
    assert [letter.reason.split(" must")[0] for letter in letters] == [
        "label column 'bought'",
        "weight column 'w'",
        "time column 'at'",
        "weight column 'w'",
    ]
    assert Dataset.open(url, label="bought", max_wait=0.2).schema.time is None


def test_a_row_is_handed_out_after_max_wait_and_an_empty_batch_while_nothing_comes(broker):
    url = broker.make()
    broker.send(url, [message(1)])
    data = Dataset.open(url, schema=SCHEMA, max_wait=0.2)
    batches = Prefetch(data, 2).iter_batches(SCHEMA, 100)
    assert len(next(batch for batch in batches if len(batch))) == 1
    assert len(next(batches)) == 0
    broker.send(url, [message(2)])
    assert prices([next(batch for batch in batches if len(batch))]) == [2]
    assert data.source.lag == "0 messages behind"
    batches.close()


def test_the_first_message_may_be_yet_to_come(nats_server, caplog):
    url = nats_server.make()

    def send_once_it_waits():
        deadline = time.monotonic() + 30
        while "waiting for the first one" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.05)
        nats_server.send(url, [message(1)])

    threading.Thread(target=send_once_it_waits, daemon=True).start()
    assert Dataset.open(url).schema == SCHEMA
    assert "waiting for the first one" in caplog.text


def test_start_new_leaves_out_what_is_there(broker):
    url = broker.make()
    broker.send(url, [message(1)])
    data = Dataset.open(f"{url}?start=new", schema=SCHEMA, limit=2, max_wait=0.2)
    data.seek({"row": 0})
    broker.send(url, [message(2), message(3)])
    assert prices(data.iter_batches(SCHEMA, 2)) == [2, 3]


def test_keys_and_times_of_messages(broker):
    url = broker.make()
    before = time.time_ns()
    broker.send(url, [b'{"id": "a", "price": 1}', b'{"id": 7, "price": 2}', b'{"price": 3}', b'{"id": {}, "price": 4}'])
    broker.send(url, [arrow([5, 6], id=["a", "7"], click=None), arrow([7], id=[None]), arrow([8], click=None)])
    batches, letters, _ = read(url, 4, key="id")
    (batch,) = batches
    assert isinstance(batch, KeyedBatch)
    assert batch.label is None
    assert batch.numerical[:, 0].tolist() == [1, 2, 5, 6]
    assert batch.key[0] == batch.key[2] != batch.key[1] == batch.key[3]
    assert (before - 10**9 < batch.sent).all()
    assert (batch.sent < time.time_ns() + 10**9).all()
    assert len(batch[1:2].key) == 1
    assert [letter.reason[:12] for letter in letters] == [
        "the key 'id'",
        "the key 'id'",
        "the key 'id'",
        "there is no ",
    ]


def test_a_subject_alone(nats_server):
    url = nats_server.make()
    nats_server.send(url, [message(1)], "mail")
    nats_server.send(url, [message(2)], "web")
    name = url.rpartition("/")[2]
    batches, _, data = read(f"{url}?subject={name}.web", 1)
    assert prices(batches) == [2]
    assert data.position()["offsets"] == "0:3"


def test_messages_that_the_broker_has_dropped_are_passed_over_and_reported(nats_server, caplog):
    url = nats_server.make(max_msgs=3)
    nats_server.send(url, [message(number) for number in range(5)])
    data = Dataset.open(url, schema=SCHEMA, limit=3)
    data.source.seek({"row": 0, "batch": 0, "offsets": "0:1", "skip": 0})
    assert prices(data.source.iter_batches(SCHEMA, 3).__next__() for _ in range(1)) == [2, 3, 4]
    assert "no longer has messages 1 to 2: continuing with 3" in caplog.text


def test_a_topic_that_was_made_anew_is_not_gone_on_with(broker):
    url = broker.make()
    broker.send(url, [message(1)])
    data = Dataset.open(url, schema=SCHEMA, limit=9)
    data.source.seek({"row": 8, "batch": 1, "offsets": "0:9", "skip": 0})
    with pytest.raises(SourceError, match="message 9 is next: it was created again"):
        next(data.source.iter_batches(SCHEMA, 1))


def test_partitions_are_read_together(kafka_server):
    url = kafka_server.make()
    kafka_server.send(url, [message(number) for number in range(20)], partitions=3)
    first, _, data = read(url, 7)
    assert data.position()["offsets"].count(":") == 4
    rest, _, _ = read(url, 20, position=data.position())
    assert sorted(prices(first) + prices(rest)) == list(range(20))


def test_a_new_partition_is_read_once_the_broker_answers(kafka_server, monkeypatch):
    url = kafka_server.make()
    kafka_server.send(url, [message(number) for number in range(2)], partitions=2)
    consumer = connect(url)
    consumer.seek(consumer.start())
    del consumer._positions[1]  # as if the partition had been added since
    monkeypatch.setattr("daes.stream.kafka_consumer._BETWEEN_PARTITION_CHECKS", 0.0)
    with monkeypatch.context() as broken:

        def no_answer(partition):
            raise BrokerError("the Kafka broker does not answer")

        broken.setattr(consumer, "_watermarks", no_answer)
        consumer.poll(1, 0.0)
        assert 1 not in consumer._positions
    consumer.poll(1, 0.0)
    assert 1 in consumer._positions
    consumer.close()


def test_a_server_that_comes_back_is_gone_on_with(tmp_path, nats_server):
    server = type(nats_server)(tmp_path)
    try:
        url = server.make()
        server.send(url, [message(number) for number in range(3)])
        data = Dataset.open(url, schema=SCHEMA, limit=6, max_wait=0.2)
        batches = data.iter_batches(SCHEMA, 3)
        assert prices([next(batches)]) == [0, 1, 2]
        server.kill()
        assert len(next(batches)) == 0
        server.start()
        server.send(url, [message(number) for number in range(3, 6)])
        assert prices(batches) == [3, 4, 5]
    finally:
        server.kill()


def test_what_is_wrong_with_a_broker_is_a_sentence(tmp_path, nats_server, kafka_server, monkeypatch):
    with pytest.raises(SourceError, match=r"the NATS server has no stream 'none'; there are: "):
        Dataset.open(f"nats://127.0.0.1:{nats_server.port}/none", schema=SCHEMA).seek({"row": 0})
    with pytest.raises(SourceError, match=r"there is no NATS server at 127\.0\.0\.1:1: .*Connect call failed"):
        Dataset.open("nats://127.0.0.1:1/ads")
    with pytest.raises(SourceError, match=r"there is no topic 'none' at 127"):
        Dataset.open(f"kafka://{kafka_server.address}/none")
    monkeypatch.setattr("daes.stream.kafka_consumer._CONNECT_SECONDS", 0.5)
    with pytest.raises(SourceError, match=r"there is no Kafka broker at 127\.0\.0\.1:1: "):
        Dataset.open("kafka://127.0.0.1:1/ads")
    settings = tmp_path / "kafka.properties"
    settings.write_text("# how to log in\nno.such.setting=1\n")
    monkeypatch.setenv("DAES_KAFKA_CONFIG", str(settings))
    with pytest.raises(SourceError, match=r"Kafka's client refuses its settings: No such configuration property"):
        Dataset.open(f"kafka://{kafka_server.address}/ads")


def test_a_login_that_is_missing_is_a_sentence(tmp_path, nats_server, monkeypatch):
    server = type(nats_server)(tmp_path, "--user", "ann", "--pass", "secret")
    try:
        with pytest.raises(SourceError, match="refuses the login: set NATS_USER and NATS_PASSWORD"):
            Dataset.open(f"nats://127.0.0.1:{server.port}/ads", schema=SCHEMA)
        monkeypatch.setenv("NATS_USER", "ann")
        monkeypatch.setenv("NATS_PASSWORD", "secret")
        with pytest.raises(SourceError, match="has no stream 'ads'; there are: none"):
            Dataset.open(f"nats://127.0.0.1:{server.port}/ads", schema=SCHEMA).seek({"row": 0})
    finally:
        server.kill()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nats://localhost", "a topic must be written as nats://localhost:4222/stream, got nats://localhost"),
        ("kafka://localhost:9092/a/b", "a topic must be written as kafka://localhost:9092/topic"),
        ("kafka://ann:secret@localhost/ads", "must not contain a user or password"),
        ("nats://localhost/ads?subjekt=x", "takes subject and start after the ?, got 'subjekt'"),
        ("kafka://localhost/ads?start=yesterday", "start must be first or new"),
        ("nats://localhost/ads?subject=", "subject must not be empty"),
    ],
)
def test_a_bad_address_is_a_sentence(url, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Dataset.open(url)


def test_options_of_files_are_not_those_of_topics(monkeypatch):
    for options in ({"format": "csv"}, {"follow": True}, {"separator": ";"}, {"order": "name"}):
        with pytest.raises(TypeError, match="is for files, got "):
            Dataset.open("nats://localhost/ads", **options)
    monkeypatch.setattr("daes.stream.opening.connect", lambda url: SimpleNamespace(start=lambda: {0: 1}))
    with pytest.raises(ValueError, match="read by one process"):
        Dataset.open("nats://localhost/ads", shard=(0, 2))


@pytest.mark.parametrize(("url", "extra"), [("nats://localhost/a", "nats"), ("kafka://localhost/a", "kafka")])
def test_without_the_package_the_error_names_the_extra(url, extra, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "nats" if extra == "nats" else "confluent_kafka", None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'daes\[{extra}\]'"):
        Dataset.open(url)


def test_messages_none_of_which_can_be_read(nats_server):
    url = nats_server.make()
    nats_server.send(url, [b"x", b"y"])
    with pytest.raises(
        SourceError, match=r"none of the first 2 messages of .* can be read; of the first one, it is not"
    ):
        Dataset.open(url)


def test_offsets_as_text():
    assert parse_offsets(format_offsets({1: 4, 0: 17}, {0: 3})) == ({0: 17, 1: 4}, {0: 3})
    with pytest.raises(ValueError, match=r"offsets must look like '0:17\+3 1:4', got 'x'"):
        parse_offsets("x")
