"""The environment of a run: versions, machine, command, commit."""

import os
import platform
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("torch", "numpy", "pyarrow", "safetensors", "scipy", "scikit-learn", "datasketches")


def environment(device: str = "cpu") -> dict[str, Any]:
    """Versions, machine, command line and git commit, as plain values for JSON.

    >>> environment()["device"]
    'cpu'
    """
    import torch

    import daes

    return {
        "daes": daes.__version__,
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := installed_version(name)) is not None},
        "system": platform.platform(),
        "machine": platform.machine(),
        "host": platform.node(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": device,
        "accelerator": torch.cuda.get_device_name(device) if device.startswith("cuda") else None,
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]) if sys.argv and sys.argv[0] else None,
        "commit": _commit(Path.cwd()),
    }


def find_device(name: str) -> str:
    """Check that the device exists and return its name; "auto" is "cuda" if there is a CUDA device, else "cpu".

    >>> find_device("cpu")
    'cpu'
    """
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu, cuda or cuda:N, got {name}")
    count = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= count:
        found = f"there {'is' if count == 1 else 'are'} {count}" if count else "torch finds none"
        raise ValueError(f"device must be a CUDA device that exists ({found}), got {name}")
    return name


def installed_version(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def _commit(folder: Path) -> str | None:
    """The commit of the git repository that contains a folder, with a + if files differ from it; None without one."""
    try:
        return _git(folder, "rev-parse", "HEAD") + ("+" if _git(folder, "status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()
