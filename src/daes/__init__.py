"""Click-through-rate models that learn from a stream and do justice to numerical features."""

__version__ = "0.1.0"
