"""Adapters for other libraries: rtdl, torch_frame, fuxictr, torchrec, river, hub (docs/adapters.md)."""
