from daes.stream.datasets import DATASETS


def test_every_dataset_is_known_by_its_name() -> None:
    for name, info in DATASETS.items():
        assert name == info.name
        assert info.usage in (name, f"{name}:PATH", f"{name}[:ROWS]")
