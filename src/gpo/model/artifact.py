"""A model as a folder: `config.json` and `model.safetensors`, loadable without pickle.

The file names are those of `huggingface_hub`, so a folder can be pushed and pulled as it is.
"""

import json
import types
import typing
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save_file
from torch import nn

from gpo.files import whole_file, write_text
from gpo.model.config import OperatorConfig
from gpo.numerics.domain import Domain

CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.safetensors"

Model = TypeVar("Model", bound=nn.Module)


class ArtifactError(ValueError):
    """A folder that does not hold the model it should; the message names file and field."""


def save(model: nn.Module, config: OperatorConfig, folder: str | Path) -> None:
    """Writes both files; each appears whole or not at all."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    state = {
        name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()
    }
    with whole_file(folder / WEIGHTS_NAME) as partial:
        save_file(state, partial, metadata={"format": "pt"})
    text = json.dumps({"model_type": type(model).__name__, **asdict(config)}, indent=2) + "\n"
    write_text(folder / CONFIG_NAME, text)


def load_config(folder: str | Path, model_type: str) -> OperatorConfig:
    """Returns the configuration in a folder, every field present, known and of its type."""
    path = Path(folder) / CONFIG_NAME
    try:
        stored = json.loads(_read(path))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{path}: must be JSON, got {error}.") from error
    if not isinstance(stored, dict):
        raise ArtifactError(f"{path}: must be a JSON object, got {type(stored).__name__}.")
    found = stored.pop("model_type", None)
    if found != model_type:
        raise ArtifactError(f"{path}: field `model_type` must be {model_type!r}, got {found!r}.")
    if isinstance(stored.get("domain"), dict):
        stored["domain"] = build(Domain, stored["domain"], f"{path}: domain")
    return build(OperatorConfig, stored, str(path))


def load(model_class: type[Model], folder: str | Path) -> Model:
    """Returns the model in a folder; its weights have the shapes its configuration says."""
    config = load_config(folder, model_class.__name__)
    path = Path(folder) / WEIGHTS_NAME
    try:
        state = load_tensors(_read(path))
    except SafetensorError as error:
        raise ArtifactError(f"{path}: must be a whole safetensors file, got {error}.") from error
    with torch.device("meta"):
        model = model_class(config)
    expected = model.state_dict()
    for name in sorted(expected.keys() | state.keys()):
        if name not in state:
            raise ArtifactError(f"{path}: tensor `{name}` is missing.")
        if name not in expected:
            raise ArtifactError(f"{path}: tensor `{name}` is not part of this {CONFIG_NAME}.")
        if state[name].shape != expected[name].shape:
            raise ArtifactError(
                f"{path}: tensor `{name}` must have shape {tuple(expected[name].shape)}, "
                f"got {tuple(state[name].shape)}."
            )
    model.load_state_dict(state, assign=True)
    return model


def build(cls: type, stored: dict[str, Any], where: str) -> Any:
    """Returns `cls(**stored)` for a data class, after checking every field against its annotation."""
    known = {field.name for field in fields(cls)}
    annotations = typing.get_type_hints(cls)
    for name, value in stored.items():
        if name not in known:
            raise ArtifactError(f"{where}: field `{name}` is unknown.")
        stored[name] = value = tuple(value) if isinstance(value, list) else value
        if not _is_a(value, annotations[name]):
            raise ArtifactError(
                f"{where}: field `{name}` must be {_spell(annotations[name])}, got {value!r}."
            )
    for name in sorted(known):
        # A default in its place could silently be another operator.
        if name not in stored:
            raise ArtifactError(f"{where}: field `{name}` is missing.")
    try:
        return cls(**stored)
    except ValueError as error:
        raise ArtifactError(f"{where}: {error}") from error


def _is_a(value: object, annotation: Any) -> bool:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return value in arguments
    if origin in (types.UnionType, typing.Union):
        return any(_is_a(value, argument) for argument in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(_is_a(item, arguments[0]) for item in value)
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, annotation)


def _spell(annotation: Any) -> str:
    if typing.get_origin(annotation) is Literal:
        return "one of " + ", ".join(repr(choice) for choice in typing.get_args(annotation))
    return getattr(annotation, "__name__", str(annotation))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArtifactError(
            f"{path}: cannot be read ({error.strerror}). "
            f"A model folder holds {CONFIG_NAME} and {WEIGHTS_NAME}."
        ) from error
