from daes.stream.datasets import DATASETS


def test_every_dataset_has_a_name_and_a_sentence() -> None:
    for name, info in DATASETS.items():
        assert name == info.name
        assert info.description
        assert info.usage in (name, f"{name}:PATH", f"{name}[:ROWS]")
