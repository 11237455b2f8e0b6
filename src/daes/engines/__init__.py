"""Engines that distribute work over processes and machines: Ray, Spark, or this process alone."""

from daes.engines.base import Engine, EngineError, LocalEngine, start_engine
from daes.engines.statistics import observe_table
from daes.engines.table import summarize_table

__all__ = ["Engine", "EngineError", "LocalEngine", "observe_table", "start_engine", "summarize_table"]
