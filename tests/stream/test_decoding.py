import json
import random

import pyarrow as pa
import pytest

from daes.stream.cursor import SourceError
from daes.stream.decoding import Decoder, infer_types, parse_object
from daes.stream.hashing import hash_text
from daes.stream.messages import DeadLetter, Message
from daes.stream.schema import Schema

SCHEMA = Schema("click", ("price",), ("city",), time="at")
ROW = {"click": 1, "price": 2, "city": "Bern", "at": 5}


def decode(*payloads, schema=SCHEMA, **options):
    messages = [Message(0, number, 0, payload) for number, payload in enumerate(payloads)]
    return Decoder(schema.roles, schema=schema, **options).decode(messages)


def objects(*changes, **options):
    return decode(*(json.dumps({**ROW, **change}).encode() for change in changes), **options)


def arrow(**changes):
    table = pa.table({**{name: [value] for name, value in ROW.items()}, **changes})
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return stream.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"city": "\ud800"}, "column 'city' must hold categories, got \"\\ud800\""),
        ({"city": 2.0**60}, "column 'city' must hold categories, got 1.152921504606847e+18"),
        ({"city": float("inf")}, "column 'city' must hold categories, got Infinity"),
        ({"price": "\ud800"}, "column 'price' must hold numbers, got \"\\ud800\""),
        ({"at": "2262-05-01"}, "time column 'at' must hold timestamps or integers, got \"2262-05-01\""),
        ({"at": "0001-01-01T00:00:00+14:00"}, "time column 'at' must hold timestamps or integers, got "),
    ],
)
def test_a_value_that_cannot_be_kept_refuses_its_message_only(change, reason):
    batch, found = objects({}, change, {"city": "Genève \U0001f3d4"})
    assert batch.categorical[:, 0].tolist() == [hash_text("Bern"), hash_text("Genève \U0001f3d4")]
    assert (found[0], found[2]) == (1, 1)
    assert found[1].startswith(reason)
    letter = DeadLetter("ADS", 0, 1, 0, found[1], b"")
    assert json.loads(letter.to_json().encode())["reason"] == found[1]


def test_categories_are_those_of_files():
    values = {float("nan"): None, 2.0**53: str(2**53), 1e-05: "0.00001", -0.0: "0", 2**70: str(2**70)}
    batch, found = objects(*({"city": value} for value in values))
    assert found == [1] * len(values)
    assert batch.categorical[:, 0].tolist() == [hash_text(text) if text else 0 for text in values.values()]


def test_words_of_labels_are_those_of_files():
    batch, found = objects(
        {"click": True}, {"click": "True"}, {"click": 0}, {"click": 2}, label_map={"True": 1, "0.0": 0}
    )
    assert found == [1, 1, 1, "label column 'click' must hold 'True' or '0.0', got 2"]
    assert batch.label.tolist() == [1, 1, 0]


def test_large_integers_are_numbers_in_both_forms():
    number = 2**60 + 1
    columns = [
        arrow(price=[number]),
        arrow(price=pa.array([number], pa.uint64())),
        json.dumps({**ROW, "price": number}),
    ]
    batch, found = decode(*(payload if isinstance(payload, bytes) else payload.encode() for payload in columns))
    assert found == [1, 1, 1]
    assert batch.numerical[:, 0].tolist() == [2.0**60] * 3


def test_a_table_with_a_column_twice_or_not_at_all():
    columns = [pa.array([1]), pa.array([1.0]), pa.array([2.0]), pa.array([5])]
    twice = pa.Table.from_arrays(columns, names=["click", "price", "price", "at"])
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, twice.schema) as writer:
        writer.write_table(twice)
    _, found = decode(stream.getvalue().to_pybytes())
    assert found == ["column names must be unique; 'price' occurs 2 times"]
    _, found = decode(arrow(), schema=Schema("bought", ("price",), ()))
    assert found[0].startswith("there is no column 'bought'")


def test_damaged_tables_are_refused_or_read_never_more():
    random.seed(0)
    whole, refused = arrow(city=["abcdefgh"]), set()
    for _ in range(2000):
        damaged = bytearray(whole)
        for _ in range(random.randint(1, 4)):
            damaged[random.randrange(4, len(damaged))] = random.randrange(256)
        _, (outcome,) = decode(bytes(damaged))
        if isinstance(outcome, str):
            refused.add(outcome.partition(":")[0])
    assert len(refused) > 5
    _, found = decode(whole.replace(b"abcdefgh", b"abc\xff\xff\xffgh"))
    assert found[0].startswith("it is not an Arrow IPC stream: ")


def test_what_is_wrong_with_the_first_of_messages_that_cannot_be_read():
    payloads = b"\xff\xff\xff\xff broken", b"{"
    with pytest.raises(SourceError, match=r"none of the first 2 messages of ADS .* it is not an Arrow IPC stream: "):
        infer_types([Message(0, 0, 0, payload) for payload in payloads], "ADS")
    readable = [Message(0, 0, 0, payload) for payload in (*payloads, b'{"price": 1}')]
    assert infer_types(readable, "ADS") == pa.schema([("price", pa.int64())])


def test_what_is_no_object():
    assert parse_object(b"[" * 100_000).startswith("it is not JSON: maximum recursion depth")
    assert parse_object(b"null") == "it must be a JSON object, got a NoneType"
