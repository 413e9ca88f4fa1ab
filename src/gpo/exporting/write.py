"""Programs as files: torch's own `.pt2`, or `.onnx`; each with a description inside.

The description is JSON: the extra file `gpo.json` of a `.pt2`, the entry `gpo` in the metadata of an `.onnx`.
"""

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from gpo.files import new_file, whole_file

SUFFIXES = (".pt2", ".onnx")
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def check_output(path: Path) -> Path:
    """Returns a path that a program can be written to; raises a `ValueError` before any work."""
    path = new_file(path, SUFFIXES)
    if path.suffix == ".onnx":
        check_onnx(path.name)
    return path


def check_onnx(what: str) -> None:
    """Raises a `ValueError` where a package is missing that something needs."""
    for name in ONNX_PACKAGES:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            raise ValueError(f"{what} needs {name}: pip install 'gpo[onnx]'") from error


def write_program(path: Path, program: ExportedProgram, description: dict[str, Any]) -> None:
    """Writes a program whole or not at all; the ending chooses the format.

    Args:
        path: A file that is not there yet.
        program: What `export_program` returned.
        description: What `describe_program` returned.
    """
    path, text = check_output(path), json.dumps(description)
    with whole_file(path) as partial:
        if path.suffix == ".pt2":
            torch.export.save(program, partial, extra_files={"gpo.json": text})
        else:
            _write_onnx(partial, program, text)


def _write_onnx(path: Path, program: ExportedProgram, text: str) -> None:
    with _quiet():
        converted = torch.onnx.export(
            program, dynamo=True, verbose=False, output_names=["prediction"]
        )
    assert converted is not None
    converted.model.metadata_props["gpo"] = text
    converted.save(path, external_data=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps to itself what the exporter says of packages and names that nobody here uses."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
