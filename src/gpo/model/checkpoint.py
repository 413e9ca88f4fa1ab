"""A model as a folder: `config.json` and `model.safetensors`, loadable without pickle.

The file names are those of `huggingface_hub`, so a folder can be pushed and pulled as it is.
"""

import json
import typing
from dataclasses import asdict, fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save_file
from torch import nn

from gpo.files import CheckpointError, check_fields, whole_file, write_text
from gpo.model.config import FieldConfig, GeometricConfig, ModelConfig, PaperConfig

CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.safetensors"

Model = TypeVar("Model", bound=nn.Module)
Config = TypeVar("Config")


MODEL_TYPES: dict[str, type[ModelConfig]] = {
    "gpo": GeometricConfig,
    "gpo-paper": PaperConfig,
    "gaussian-field": FieldConfig,
}
"""How our own models are known, by their configurations."""

FORMER_TYPES = {"GaussianParticleOperator", "GaussianField"}
"""How they were known in gpo 0.1."""


def save(
    model: nn.Module, config: Any, folder: str | Path, *, model_type: str | None = None
) -> None:
    """Writes both files; each appears whole or not at all.

    Args:
        model: What to keep.
        config: The data class it was built from.
        folder: Where; made if missing.
        model_type: How the model is known; by its configuration when not given.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    state = {
        name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()
    }
    with whole_file(folder / WEIGHTS_NAME) as partial:
        save_file(state, partial, metadata={"format": "pt"})
    if model_type is None:
        model_type = next(name for name, kind in MODEL_TYPES.items() if isinstance(config, kind))
    stored = {"model_type": model_type, "gpo_version": version("gpo"), **asdict(config)}
    write_text(folder / CONFIG_NAME, json.dumps(stored, indent=2) + "\n")


def model_type(folder: str | Path) -> str:
    """Returns how the model in a folder is known."""
    stored = _read_config(folder)
    found, made_by = str(stored.get("model_type")), str(stored.get("gpo_version"))
    former = "0.1.0" if found in FORMER_TYPES else made_by
    if found in FORMER_TYPES or (found in MODEL_TYPES and made_by.startswith("0.2.")):
        raise CheckpointError(
            f"{Path(folder) / CONFIG_NAME}: this {found} was written by gpo {former}, and its "
            f"weights have other names since. gpo {former} loads it; train it anew with this version."
        )
    return found


def load_config(folder: str | Path, config_class: type[Config]) -> Config:
    """Returns the configuration in a folder, every field present, known and of its type."""
    stored = _read_config(folder)
    for name in ("model_type", "gpo_version"):
        stored.pop(name, None)
    return build(config_class, stored, str(Path(folder) / CONFIG_NAME))


def load(model_class: type[Model], folder: str | Path) -> Model:
    """Returns the operator or field in a folder; its configuration must suit the class."""
    found = model_type(folder)
    config_class = MODEL_TYPES.get(found)
    suits = config_class is FieldConfig, model_class.__name__ == "GaussianField"
    if config_class is None or suits[0] != suits[1]:
        raise CheckpointError(
            f"{Path(folder) / CONFIG_NAME}: field `model_type` must be that of a "
            f"{model_class.__name__}, got {found!r}."
        )
    config = load_config(folder, config_class)
    with torch.device("meta"):
        model = model_class(config)
    load_weights(model, folder)
    return model


def load_weights(model: nn.Module, folder: str | Path) -> None:
    """Gives a model the weights in a folder, which must have its names and shapes."""
    path = Path(folder) / WEIGHTS_NAME
    try:
        state = load_tensors(_read(path))
    except SafetensorError as error:
        raise CheckpointError(f"{path}: must be a whole safetensors file, got {error}.") from error
    expected = model.state_dict()
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
    model.load_state_dict(state, assign=True)


def _read_config(folder: str | Path) -> dict[str, Any]:
    path = Path(folder) / CONFIG_NAME
    try:
        stored = json.loads(_read(path))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: must be JSON, got {error}.") from error
    if not isinstance(stored, dict):
        raise CheckpointError(f"{path}: must be a JSON object, got {type(stored).__name__}.")
    return stored


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
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error.strerror}). "
            f"A model folder holds {CONFIG_NAME} and {WEIGHTS_NAME}."
        ) from error
