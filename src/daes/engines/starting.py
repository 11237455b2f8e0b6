"""Engines by name."""

from daes.engines.base import Engine, LocalEngine


def start_engine(name: str) -> Engine:
    """An engine by its name: "local" (this process), "ray" or "spark". The latter two are extras of daes.

    >>> type(start_engine("local")).__name__
    'LocalEngine'
    """
    if name == "ray":
        from daes.engines.ray import RayEngine

        return RayEngine()
    if name == "spark":
        from daes.engines.spark import SparkEngine

        return SparkEngine()
    if name != "local":
        raise ValueError(f"engine must be one of local, ray, spark, got {name!r}")
    return LocalEngine()
