"""A model as a folder: `config.json` and `model.safetensors`, loadable without pickle.

The file names are those of `huggingface_hub`, so a folder can be pushed and pulled as it is.
"""

import hashlib
import json
import typing
from dataclasses import asdict, fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as pack_tensors
from torch import Tensor, nn

from gpo.atomic_files import file_problem, whole_file
from gpo.model.config import FieldConfig, GeometricConfig, ModelConfig, PaperConfig
from gpo.settings_files import CheckpointError, check_fields

CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.safetensors"
CHECKSUM = "weights_sha256"
"""Field of `config.json`: the SHA-256 of the weights, which have no checksum of their own."""
ABOUT = ("model_type", "gpo_version", CHECKSUM)
"""Fields of `config.json` that are none of the configuration."""
NUMBERS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""What real weights may be stored as."""

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
    if model_type is None:
        model_type = next(name for name, kind in MODEL_TYPES.items() if isinstance(config, kind))
    packed = pack_tensors(state, metadata={"format": "pt"})
    about = dict(zip(ABOUT, (model_type, version("gpo"), sha256(packed)), strict=True))
    text = json.dumps({**about, **asdict(config)}, indent=2) + "\n"
    # Both are whole before either is moved to its place.
    with whole_file(folder / CONFIG_NAME) as config_file, whole_file(folder / WEIGHTS_NAME) as file:
        config_file.write_text(text, encoding="utf-8")
        file.write_bytes(packed)


def sha256(content: bytes) -> str:
    """Returns the checksum by which damage to a file is noticed."""
    return hashlib.sha256(content).hexdigest()


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
    for name in ABOUT:
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
    """Gives a model the weights in a folder, which must have its names and shapes and be finite."""
    path = Path(folder) / WEIGHTS_NAME
    packed, checksum = _read(path), _read_config(folder).get(CHECKSUM)
    try:
        state = load_tensors(packed)
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
        check_numbers(state[name], expected[name].dtype, path, name)
    # Models of earlier versions have none.
    if checksum is not None and checksum != sha256(packed):
        raise CheckpointError(
            f"{path}: is not what was saved: its SHA-256 is not the `{CHECKSUM}` of {CONFIG_NAME}. "
            "Copy the folder again, or train the model again."
        )
    model.load_state_dict(state, assign=True)


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
    path = Path(folder) / CONFIG_NAME
    content = _read(path)
    try:
        stored = json.loads(content)
    except (ValueError, RecursionError) as error:
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
    problem = file_problem(path)
    if problem is not None:
        raise CheckpointError(f"{path} {problem}")
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error.strerror}). "
            f"A model folder holds {CONFIG_NAME} and {WEIGHTS_NAME}."
        ) from error
