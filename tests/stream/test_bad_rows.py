from daes.storage.nested_state import decode_state, encode_state
from daes.stream.bad_rows import BadRow, BadRows


def noted(paths: list[str], numbers: range) -> BadRows:
    rows = BadRows(paths)
    for number in numbers:
        rows.add(BadRow(paths[0], number, "why"))
    return rows


def test_a_saved_state_is_added_under_the_paths_that_the_files_have_now() -> None:
    state = decode_state(encode_state(noted(["a.csv", "b.csv"], range(1, 4)).state_dict()))
    rows = noted(["new/a.csv", "new/b.csv", "new/c.csv"], range(3, 6))
    rows.load_state_dict(state)
    assert (rows.count, [row.row for row in rows.first]) == (5, [1, 2, 3, 4, 5])
    assert {row.path for row in rows.first} == {"new/a.csv"}
    followed = BadRows()  # files that are not known beforehand keep their paths
    followed.load_state_dict(state)
    assert {row.path for row in followed.first} == {"a.csv"}


def test_a_state_of_an_earlier_version_has_lists_and_no_paths() -> None:
    rows = noted(["a.csv"], range(1, 2))
    rows.load_state_dict({"first": [["a.csv", 1, "why"], ["a.csv", 7, "why"]], "numbers": {"a.csv": [1, 7]}})
    assert (rows.count, [row.row for row in rows.first]) == (2, [1, 7])


def test_a_state_of_many_rows_is_small_but_for_arrays() -> None:
    assert len(encode_state(noted(["a.csv"], range(200_000)).state_dict()).structure) < 1_000_000
