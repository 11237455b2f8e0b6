"""The method that an adapter uses."""

from typing import Any

from daes.embedding import NumericalEmbedding, build_embedding


def build_method(method: str | NumericalEmbedding, num_features: int, dim: int, **options: Any) -> NumericalEmbedding:
    """A method by name, or a given module; it must have one vector per feature, as other libraries expect.

    >>> build_method("fe", 3, 4)
    FE(num_features=3, dim=4)
    >>> build_method("dlrm", 3, 4)
    Traceback (most recent call last):
    ValueError: method must give one vector per feature, 3 for 3 features; DLRM gives 1
    """
    if isinstance(method, str):
        method = build_embedding(method, num_features, dim, **options)
    elif options:
        raise ValueError(f"options of the method must be given to the module itself, got {', '.join(options)}")
    for name, wanted in (("num_features", num_features), ("dim", dim)):
        if getattr(method, name) != wanted:
            raise ValueError(f"method must have {name}={wanted}, got {name}={getattr(method, name)}")
    if method.num_outputs != num_features:
        raise ValueError(
            f"method must give one vector per feature, {num_features} for {num_features} features; "
            f"{type(method).__name__} gives {method.num_outputs}"
        )
    return method
