"""`itertime models` and `itertime systems`: the shipped models and systems."""

from __future__ import annotations

from itertime.commandline import print_json

from .options import Json

__all__ = ["models", "systems"]


def models(json: Json = False) -> None:
    """List the shipped models."""
    from itertime.spec import list_models, load_model

    specs = [load_model(name) for name in list_models()]
    if json:
        print_json({"models": [{**vars(spec), "parameters": spec.parameters} for spec in specs]})
        return
    for spec in specs:
        shape = f"{spec.layers:4} layers  h {spec.hidden:6}  {spec.heads:4} heads  s {spec.seq_len:5}"
        print(f"{spec.name:18} {spec.parameters / 1e9:8.1f}B {shape}  {spec.source}")


def systems(json: Json = False) -> None:
    """List the shipped systems."""
    from itertime.spec import list_systems, load_system

    found = [load_system(name) for name in list_systems()]
    if json:
        keys = ("name", "profile", "gpus_per_node", "nic_bytes_per_s", "nvlink_bytes_per_s", "source")
        print_json({"systems": [{key: getattr(system, key) for key in keys} for system in found]})
        return
    for system in found:
        nics = f"{system.nic_bytes_per_s * 8 / 1e9:6.0f} Gb/s per node"
        print(f"{system.name:18} {system.gpus_per_node} x {system.profile:12} {nics}  {system.source}")
