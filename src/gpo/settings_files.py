"""Reads settings from YAML and JSON; checks size, depth and the types of fields."""

import hashlib
import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from gpo.atomic_files import file_problem

CONTENT_CHECKSUM = "content_sha256"
"""Field of a JSON file: the checksum of its other fields."""
LARGEST_YAML, LARGEST_JSON, DEEPEST_YAML = 2**20, 2**26, 20


class CheckpointError(ValueError):
    """A file or folder with invalid content; the message names file and field."""


def read_yaml(path: Path) -> Any:
    """Returns the content of a YAML file of limited size and depth, without aliases."""
    problem = file_problem(path)
    if problem is not None:
        raise ValueError(f"{path} {problem}")
    if path.stat().st_size > LARGEST_YAML:
        raise ValueError(f"{path}: must have at most {LARGEST_YAML} bytes.")
    import yaml

    try:
        text, depth = path.read_text(encoding="utf-8"), 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            # Nested aliases can expand to terabytes.
            if isinstance(event, yaml.AliasEvent):
                raise ValueError(
                    f"{path}: must repeat settings instead of the alias `*{event.anchor}`."
                )
            if depth > DEEPEST_YAML:
                raise ValueError(f"{path}: must be nested at most {DEEPEST_YAML} deep.")
        return yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: must be YAML, got {error}") from error


def read_json(path: Path, *, advice: str = "") -> dict[str, Any]:
    """Returns the JSON object in a file of limited size and depth.

    Args:
        path: The file.
        advice: What an error adds where the file cannot be read.
    """
    problem = file_problem(path)
    if problem is not None:
        raise CheckpointError(f"{path} {problem}")
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise ValueError(f"more than {LARGEST_JSON} bytes")
        stored = json.loads(path.read_bytes().decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: must be JSON, got {error}.") from error
    except OSError as error:
        message = f"{path}: cannot be read: {error.strerror}. {advice}".rstrip()
        raise CheckpointError(message) from error
    if not isinstance(stored, dict):
        raise CheckpointError(f"{path}: must be a JSON object, got {type(stored).__name__}.")
    return stored


def checksum_of(content: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of a JSON object without its own checksum, whatever the order of fields."""
    plain = {name: value for name, value in content.items() if name != CONTENT_CHECKSUM}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def check_checksum(path: Path, content: Mapping[str, Any]) -> None:
    """Raises an error if a JSON object is not what was saved; earlier versions wrote no checksum."""
    if content.get(CONTENT_CHECKSUM, checksum_of(content)) != checksum_of(content):
        raise CheckpointError(
            f"{path}: is not what was saved: its SHA-256 is not its `{CONTENT_CHECKSUM}`. Copy the "
            "folder again, or train the model again."
        )


def check_fields(
    cls: type,
    stored: Mapping[str, Any],
    where: str,
    *,
    prefix: str = "",
    error: type[ValueError] = ValueError,
) -> dict[str, Any]:
    """Checks values for fields of a data class and returns them, lists as tuples.

    Args:
        cls: The data class.
        stored: Values by name, for all or some fields.
        where: The file, for messages.
        prefix: Prefix of field names in messages, such as the section.
        error: Type of error for an unknown field or a wrong type.
    """
    names, annotations = {f.name for f in fields(cls)}, typing.get_type_hints(cls)
    checked: dict[str, Any] = {}
    for name, value in stored.items():
        if name not in names:
            raise error(f"{where}: field `{prefix}{name}` is unknown.")
        checked[name] = tuple(value) if isinstance(value, list) else value
        if not _is_a(checked[name], annotations[name]):
            expected = _spell(annotations[name])
            raise error(f"{where}: field `{prefix}{name}` must be {expected}, got {value!r}.")
    return checked


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


def assignments(flag: str, texts: Sequence[str]) -> dict[str, str]:
    """Returns the `name=value` arguments of a flag; several values of a name are joined by commas."""
    values: dict[str, str] = {}
    for text in texts:
        if "=" not in text:
            raise ValueError(f"--{flag} takes name=value, got {text!r}.")
        name, value = text.split("=", 1)
        values[name] = f"{values[name]},{value}" if name in values else value
    return values
