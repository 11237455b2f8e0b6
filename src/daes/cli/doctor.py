"""`daes doctor`: what is installed, what is missing, and the hardware."""

from typing import Any

from daes.cli.console import out, print_json, say
from daes.cli.options import Json
from daes.formatting import counted

_BRINGS = {
    "cli": "the command line",
    "data": "Parquet and CSV files, tables, frames",
    "stats": "significance tests, StreamingClassifier",
    "sketches": "KLL and t-digest sketches",
    "save": "locks of run folders, checks of methods and backbones of your own",
    "plot": "reports and plots",
    "datasets": "the flights stream",
    "onnx": "export to ONNX",
    "lightgbm": "LightGBM beside the models in comparisons",
    "serve": "models over HTTP",
    "nats": "streams of NATS JetStream",
    "kafka": "streams of Kafka",
    "tensorboard": "metrics in TensorBoard",
    "mlflow": "metrics in MLflow",
    "wandb": "metrics in Weights & Biases",
    "ray": "training, comparisons and distributions of a whole table on Ray",
    "spark": "distributions of a whole table on Spark",
    "torchrec": "tables divided among processes",
}
_DISTRIBUTIONS = {
    "sklearn": "scikit-learn",
    "prometheus_client": "prometheus-client",
    "nats": "nats-py",
    "confluent_kafka": "confluent-kafka",
}


def doctor(json: Json = False) -> None:
    """Show what is installed, what is missing and how to install it, and the hardware.

    Each extra is listed with what it brings, its packages and, if one is missing, the command that installs them;
    then whether the compiled loops are there that make training on a CPU several times as fast.

    Examples:

        daes doctor
        daes doctor --json
    """
    found = examine()
    if json:
        print_json(found)
        return
    from daes.table import Table

    machine = found["machine"]
    say(f"daes {found['daes']}, python {machine['python']}, torch {machine['torch']}, {machine['system']}")
    rows = [
        (name, _BRINGS.get(name, ""), packages, extra["install"] or "installed")
        for name, extra in found["extras"].items()
        for packages in [", ".join(f"{package} {there or '–'}" for package, there in extra["packages"].items())]
    ]
    out.print(Table(("extra", "brings", "packages", "state"), rows, left=frozenset(range(4))))
    out.print(f"{counted(machine['cores'], 'core')}, {counted(machine['threads'], 'thread')} for torch")
    if machine["compiled_loops"]:
        out.print("compiled loops for the CPU: there")
    else:
        say(
            "no compiled loops: training on a CPU takes several times as long. `python -m daes.native` makes them, "
            "where there is a C compiler and DAES_NATIVE=0 is not set"
        )
    if machine["gpus"]:
        out.print(f"CUDA: {', '.join(machine['gpus'])}; --device auto takes the first")
    else:
        say(
            "no CUDA device: training runs on the CPU. With one, --device auto takes it, a training step is recorded "
            "once and replayed, and --amp computes in bfloat16"
        )


def examine() -> dict[str, Any]:
    """Installed packages and hardware, as plain values."""
    import os
    import platform

    import torch

    import daes
    from daes import native
    from daes.extras import EXTRA_OF
    from daes.training.environment import installed_version

    extras: dict[str, dict[str, Any]] = {}
    for module, extra in EXTRA_OF.items():
        name = _DISTRIBUTIONS.get(module, module)
        extras.setdefault(extra, {"packages": {}, "install": None})["packages"][name] = installed_version(name)
    for extra, state in extras.items():
        if None in state["packages"].values():
            state["install"] = f"pip install 'daes[{extra}]'"
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return {
        "daes": daes.__version__,
        "machine": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "system": platform.platform(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "compiled_loops": native.serves(),
            "gpus": gpus,
        },
        "extras": extras,
    }
