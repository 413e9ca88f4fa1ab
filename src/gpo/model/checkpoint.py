"""A model as a folder: `config.json` and `model.safetensors`, loadable without pickle.

The file names are those of `huggingface_hub`, so a folder can be pushed and pulled as it is.
"""

import hashlib
import json
import typing
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as pack_tensors
from torch import Tensor, nn

from gpo.atomic_files import atomic_file, file_problem
from gpo.model.former import completed, renamed, upgraded
from gpo.model.problem import Problem
from gpo.settings_files import CheckpointError, check_fields, read_json

CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.safetensors"
CONTENT = f"A model folder holds {CONFIG_NAME} and {WEIGHTS_NAME}."
CHECKSUM = "weights_sha256"
"""Field of `config.json`: the SHA-256 of the weights, which have no checksum of their own."""
ABOUT = ("model_type", "gpo_version", CHECKSUM)
"""Fields of `config.json` that are none of the configuration."""
NUMBERS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""What real weights may be stored as."""

OUR_MODELS = ("gpo", "gpo-paper", "gaussian-field")
FORMER_NAMES = ("GaussianParticleOperator", "GaussianField")
"""Names of our models in gpo 0.1."""


@dataclass(frozen=True)
class Stored:
    """The content of `config.json`."""

    path: Path
    name: str
    problem: dict[str, Any]
    config: dict[str, Any] | None
    """None in folders of baselines of gpo 0.1, which had the default sizes only."""
    renames: Callable[[str], str] = str
    """Maps the names of stored tensors to those of today."""
    has_scales: bool = True
    """False where particles had no scales of their own."""

    def build_problem(self) -> Problem:
        """Returns the problem that the model was built for."""
        return build(Problem, self.problem, f"{self.path}: problem")


def save(module: nn.Module, name: str, problem: Problem, config: Any, folder: str | Path) -> None:
    """Writes both files; each appears whole or not at all.

    Args:
        module: Whose parameters to save.
        name: How the model is registered.
        problem: What it was built for.
        config: The data class it was built from.
        folder: Where; made if missing.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    state = {key: tensor.detach().cpu().contiguous() for key, tensor in module.state_dict().items()}
    packed = pack_tensors(state, metadata={"format": "pt"})
    about = dict(zip(ABOUT, (name, version("gpo"), sha256(packed)), strict=True))
    fields = {**about, "problem": asdict(problem), "config": asdict(config)}
    # Both are whole before either is moved to its place.
    with (
        atomic_file(folder / CONFIG_NAME) as config_file,
        atomic_file(folder / WEIGHTS_NAME) as file,
    ):
        config_file.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
        file.write_bytes(packed)


def read(folder: str | Path) -> Stored:
    """Returns the content of `config.json`, in the form of this version."""
    path, stored = Path(folder) / CONFIG_NAME, _read_config(folder)
    name, made_by = str(stored.get("model_type")), str(stored.get("gpo_version"))
    former = "0.1.0" if name in FORMER_NAMES else made_by
    if name in FORMER_NAMES or (name in OUR_MODELS and made_by.startswith("0.2.")):
        raise CheckpointError(
            f"{path}: this {name} was written by gpo {former}, and its weights have other names "
            f"since. gpo {former} loads it; train it anew with this version."
        )
    for key in ABOUT:
        stored.pop(key, None)
    if not stored.keys() & {"problem", "config"}:
        if name in OUR_MODELS:
            return Stored(path, name, *upgraded(name, stored), partial(renamed, stored), False)
        return Stored(path, name, {"num_points": None, **stored}, None)
    for key in ("problem", "config"):
        if not isinstance(stored.get(key), dict):
            raise CheckpointError(f"{path}: field `{key}` is missing.")
    unknown = sorted(stored.keys() - {"problem", "config"})
    if unknown:
        raise CheckpointError(f"{path}: field `{unknown[0]}` is unknown.")
    problem = dict(stored["problem"])
    if made_by.startswith(("0.1.", "0.3.", "0.4.", "0.5.", "0.6.")):
        problem.setdefault("num_points", None)
    return Stored(path, name, problem, stored["config"], has_scales=not made_by.startswith("0.7."))


def sha256(data: bytes) -> str:
    """Returns the checksum by which damage to a file is noticed."""
    return hashlib.sha256(data).hexdigest()


def load_weights(module: nn.Module, stored: Stored) -> None:
    """Loads the weights in a folder, which must have the module's names and shapes and be finite.

    Args:
        module: Takes them.
        stored: The configuration beside them.
    """
    folder = stored.path.parent
    path = Path(folder) / WEIGHTS_NAME
    packed, checksum = _read(path), _read_config(folder).get(CHECKSUM)
    try:
        state = {stored.renames(name): tensor for name, tensor in load_tensors(packed).items()}
    except SafetensorError as error:
        raise CheckpointError(f"{path}: must be a whole safetensors file, got {error}.") from error
    expected = module.state_dict()
    state = state if stored.has_scales else completed(state, expected)
    for name in sorted(expected.keys() | state.keys()):
        if name not in state:
            raise CheckpointError(f"{path}: tensor `{name}` is missing.")
        if name not in expected:
            raise CheckpointError(f"{path}: tensor `{name}` is not part of this {CONFIG_NAME}.")
        if state[name].shape != expected[name].shape:
            raise CheckpointError(
                f"{path}: tensor `{name}` must have shape {tuple(expected[name].shape)}, "
                f"got {tuple(state[name].shape)}."
            )
        check_numbers(state[name], expected[name].dtype, path, name)
    # Models of earlier versions have none.
    if checksum is not None and checksum != sha256(packed):
        raise CheckpointError(
            f"{path}: is not what was saved: its SHA-256 is not the `{CHECKSUM}` of {CONFIG_NAME}. "
            "Copy the folder again, or train the model again."
        )
    module.load_state_dict(state, assign=True)


def check_numbers(values: Tensor, like: torch.dtype, path: Path, name: str) -> None:
    """Refuses a tensor of a file that has other kinds of numbers, or some that are not finite.

    Args:
        values: The tensor.
        like: What it is expected to be; real numbers may have another precision.
        path: The file.
        name: How it is called there.
    """
    if values.dtype != like and not (values.dtype in NUMBERS and like in NUMBERS):
        kinds = [str(dtype).removeprefix("torch.") for dtype in (like, values.dtype)]
        raise CheckpointError(f"{path}: tensor `{name}` must be {kinds[0]}, got {kinds[1]}.")
    num_wrong = int((~values.isfinite()).sum())
    if num_wrong:
        raise CheckpointError(
            f"{path}: tensor `{name}` must be finite, but {num_wrong:,} of {values.numel():,} numbers "
            "are not: all forecasts would be NaN. Train the model again."
        )


def _read_config(folder: str | Path) -> dict[str, Any]:
    return read_json(Path(folder) / CONFIG_NAME, advice=CONTENT)


def build(cls: type, stored: dict[str, Any], where: str) -> Any:
    """Returns `cls(**stored)` for a data class, after checking every field against its annotation.

    Data classes inside are built first.
    """
    annotations = typing.get_type_hints(cls)
    stored = {
        name: build(annotations[name], value, f"{where}: {name}")
        if isinstance(value, dict) and is_dataclass(annotations.get(name))
        else value
        for name, value in stored.items()
    }
    stored = check_fields(cls, stored, where, error=CheckpointError)
    for name in sorted(field.name for field in fields(cls)):
        # A default in its place could silently be another operator.
        if name not in stored:
            raise CheckpointError(f"{where}: field `{name}` is missing.")
    try:
        return cls(**stored)
    except ValueError as error:
        raise CheckpointError(f"{where}: {error}") from error


def _read(path: Path) -> bytes:
    problem = file_problem(path)
    if problem is not None:
        raise CheckpointError(f"{path} {problem}")
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}. {CONTENT}") from error
