"""Frozen models: exported to a file, scoring in process, served over HTTP."""
