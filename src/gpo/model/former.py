"""Model folders of gpo 0.3 to 0.7, in the form of this version.

Up to 0.6 the configuration of our models was flat and held the problem too, and a layer with transport
kept the parameters of its particles one level deeper. Up to 0.7 particles had no scales: they sampled
through the multilinear kernel.
"""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gpo.model.former_options import with_present_options
from gpo.model.scales import MULTILINEAR

PROBLEM = ("in_channels", "out_channels", "domain")


def upgraded(name: str, stored: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns problem and configuration of a model of ours.

    Args:
        name: How the model is registered.
        stored: The fields of its `config.json`.
    """
    fields = dict(stored)
    mesh_shape = fields.pop("mesh_shape", [])
    problem = {key: fields.pop(key) for key in PROBLEM if key in fields}
    problem |= {"grid_shape": mesh_shape, "is_fitted": bool(mesh_shape), "num_points": None}
    if name == "gpo":
        return problem, fields
    fields |= fields.pop("encoder", {})
    losses = {"center": 0.1, "scale": 0.1, "input": 0.0, "target": 0.0, "basis": 0.0}
    fields |= {"ablation": None, **{f"loss_{key}": weight for key, weight in losses.items()}}
    if name == "gaussian-field":
        fields |= {
            "num_layers": 0, "num_heads": 1, "mixing": 0.5, "learns_mixing": False,
            "renormalises": True, "signed_readout": False, "share_layers": False,
        }  # fmt: skip
    return problem, with_present_options(fields)


def renamed(stored: Mapping[str, Any], name: str) -> str:
    """Returns the present name of a tensor.

    Args:
        stored: The fields of `config.json`, which define which layers have transport.
        name: The name in the file.
    """
    name = name.removeprefix("operator.")
    match = re.fullmatch(r"layers\.(\d+)\.(.+)", name)
    if match is None or "num_transports" not in stored:
        return name
    number, part = int(match[1]), match[2]
    if number < stored["num_layers"] - stored["num_transports"]:
        return name
    if part.startswith("transport."):
        part = part.removeprefix("transport.")
        return f"layers.{number}.{'source' if part == 'content' else part}"
    return f"layers.{number}.waves.{part}"


def completed(state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns stored tensors with the scales of particles that had none, below those of any lattice.

    Args:
        state: The tensors in the file, by their present names.
        expected: Those of the model.
    """
    scales = {
        name: torch.full(like.shape, MULTILINEAR, dtype=like.dtype)
        for name, like in expected.items()
        if name.endswith(".log_scale") and name not in state
    }
    return {**state, **scales}
