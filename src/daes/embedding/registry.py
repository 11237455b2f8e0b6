"""Every method by name."""

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from inspect import signature
from typing import Any

from daes.embedding.autodis import AutoDis
from daes.embedding.base import MethodInfo, NumericalEmbedding
from daes.embedding.dae import DAE
from daes.embedding.daes import DAES
from daes.embedding.deer import DEER
from daes.embedding.dlrm import DLRM
from daes.embedding.efd import EFD
from daes.embedding.ewd import EWD
from daes.embedding.fe import FE
from daes.embedding.keyvalue import KeyValue
from daes.embedding.ld import LD
from daes.embedding.multihot import MultiHot
from daes.embedding.narydis import NaryDis
from daes.embedding.ple import PLE
from daes.embedding.plr import PLR
from daes.embedding.td import TD
from daes.embedding.youtube import YouTube

METHODS: dict[str, type[NumericalEmbedding]] = {
    "efd": EFD,
    "ewd": EWD,
    "ld": LD,
    "td": TD,
    "multihot": MultiHot,
    "youtube": YouTube,
    "dlrm": DLRM,
    "fe": FE,
    "autodis": AutoDis,
    "deer": DEER,
    "keyvalue": KeyValue,
    "narydis": NaryDis,
    "plr": PLR,
    "ple": PLE,
    "dae": DAE,
    "daes-gate": DAES,
    "daes-tran": DAES,
    "daes": DAES,
}
"""Name → class."""

PRESETS: dict[str, dict[str, Any]] = {
    "daes-gate": {"modulation": "gate"},
    "daes-tran": {"modulation": "tran"},
    "daes": {"modulation": None, "basis": "hat", "knots": 100, "linear": "value", "raw": ["score", "value"]},
}
"""Options a name stands for beside its class; given ones win."""

_PRESET_INFO: dict[str, dict[str, Any]] = {
    "daes-gate": {"title": "DAES, gate, as published"},
    "daes-tran": {"title": "DAES, tran, as published"},
    "daes": {"title": "DAES, our preset", "field_aware": False},
}
"""What is to be said of a name that its class's info does not say."""


def build_embedding(method: str, num_features: int, dim: int = 16, **options: Any) -> NumericalEmbedding:
    """Make a method by its name in `METHODS`.

    >>> build_embedding("efd", num_features=3, num_bins=20)
    EFD(num_features=3, dim=16, num_bins=20)
    """
    _check_name(method)
    known = list(signature(METHODS[method]).parameters)[2:]
    for name in options:
        if name not in known:
            raise TypeError(f"{method} has no option {name!r}; it has {', '.join(known)}")
    return METHODS[method](num_features, dim, **{**PRESETS.get(method, {}), **options})


def spelled_out(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with which the method is what it was when these were saved, however its preset has grown since.

    They held the whole preset of their time, so that a name of today's preset that is not among them had the class's
    default.

    >>> spelled_out("daes", {"modulation": None, "basis": "hat"})
    {'modulation': None, 'basis': 'hat', 'knots': None, 'linear': None, 'raw': ()}
    """
    parameters = signature(METHODS[method]).parameters
    return {**{name: parameters[name].default for name in PRESETS.get(method, {})}, **options}


def method_info(method: str) -> MethodInfo:
    """What is known of a method by its name; of a preset, as it is without further options.

    >>> method_info("daes-gate").field_aware, method_info("daes").field_aware
    (True, False)
    """
    _check_name(method)
    return replace(METHODS[method].info, **_PRESET_INFO.get(method, {}))


def _check_name(method: str) -> None:
    if method not in METHODS:
        close = get_close_matches(method, METHODS, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}{hint}")
