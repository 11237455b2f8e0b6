"""Doors into other libraries, one module each: rtdl, torch_frame, fuxictr, torchrec, river, hub (docs/adapters.md)."""
