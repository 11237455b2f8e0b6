import json

from daes.storage.dead_letters import DeadLetters
from daes.stream.messages import DeadLetter


def letter(offset, topic="ads", partition=0):
    return DeadLetter(topic, partition, offset, 0, "it is not JSON", b"x")


def offsets(path):
    return [json.loads(line)["offset"] for line in path.read_text().splitlines()]


def test_letters_after_the_position_are_written_again_and_no_letter_twice(tmp_path):
    path = tmp_path / "dead_letters.jsonl"
    letters = DeadLetters(path)
    letters.open({"ads": {0: 0}})
    assert not path.exists()
    for number in (3, 7, 9):
        letters.add(letter(number))
    letters.close()
    with path.open("a") as file:
        file.write('{"topic": "ads", "parti')  # a kill in the middle of a line
    again = DeadLetters(path)
    again.open({"ads": {0: 8}})
    assert (again.count, offsets(path)) == (2, [3, 7])
    again.add(letter(9))
    again.state_dict()
    assert (again.count, offsets(path)) == (3, [3, 7, 9])


def test_each_partition_and_topic_has_its_own_position(tmp_path):
    path = tmp_path / "dead_letters.jsonl"
    letters = DeadLetters(path)
    letters.open({"ads": {}, "clicks": {}})
    for topic, partition, offset in (("ads", 0, 5), ("ads", 1, 5), ("clicks", 0, 5), ("other", 0, 1)):
        letters.add(letter(offset, topic, partition))
    letters.open({"ads": {0: 6, 1: 5}, "clicks": {0: 9}})
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["topic"], line["partition"]) for line in kept] == [("ads", 0), ("clicks", 0)]
