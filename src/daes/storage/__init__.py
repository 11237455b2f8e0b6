"""Files on disk: durable writes, checkpoints, saved models, run folders, locks."""
