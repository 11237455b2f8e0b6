"""AUC, LogLoss and calibration of a stream: small states that merge."""
