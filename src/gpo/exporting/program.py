"""Traces a forecaster on fixed sites and writes the program as `.pt2` (torch) or `.onnx`.

Constants are folded between two traces. The description of the program is JSON inside the file: the
extra file `gpo.json` of a `.pt2`, the metadata entry `gpo` of an `.onnx`.
"""

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram, export
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from gpo.atomic_files import atomic_file, new_file
from gpo.forecast.fixed import FixedForecaster
from gpo.optional import require

SUFFIXES = (".pt2", ".onnx")
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
"""Packages of the extra `onnx`."""


def export_program(fixed: FixedForecaster) -> ExportedProgram:
    """Returns the program of a forecaster: frames in, the predicted frame out, in any batch size.

    It has the operations of the model in their order, so that predictions agree to the last digit
    on the same processor.
    """
    task = fixed.forecaster.task
    frames = torch.zeros(fixed.frames_shape, dtype=torch.double if task.needs_double else None)
    module = _traced(fixed.eval(), frames).module()
    assert isinstance(module, GraphModule)
    return _traced(fold_constants(module), frames)


def write_program(path: Path, program: ExportedProgram, description: dict[str, Any]) -> None:
    """Writes a program completely or not at all, in the format of the suffix.

    Args:
        path: A new file, `.pt2` or `.onnx`.
        program: The result of `export_program`.
        description: The result of `describe_program`.
    """
    path, text = check_output(path), json.dumps(description)
    with atomic_file(path) as partial:
        if path.suffix == ".pt2":
            torch.export.save(program, partial, extra_files={"gpo.json": text})
        else:
            _write_onnx(partial, program, text)


def check_output(path: Path) -> Path:
    """Returns the path if a program can be written there; raises an error otherwise."""
    path = new_file(path, SUFFIXES)
    if path.suffix == ".onnx":
        require_onnx(f"Writing {path.name}")
    return path


def require_onnx(purpose: str) -> None:
    """Raises a `MissingPackageError` if a package of the extra `onnx` is not installed."""
    for name in ONNX_PACKAGES:
        require(name, "onnx", purpose)


def _traced(module: torch.nn.Module, frames: Tensor) -> ExportedProgram:
    # torch.export treats a batch size of one as constant.
    frames = torch.stack([frames, frames])
    with torch.no_grad():
        return export(module, (frames,), dynamic_shapes=({0: Dim("batch", min=1)},))


@torch.no_grad()
def fold_constants(module: GraphModule) -> GraphModule:
    """Returns the module with folded constants and without trainable parameters.

    On fixed sites most of a model does not depend on the input: coordinate features, waves,
    filters. These are computed once and stored as buffers.

    Args:
        module: The result of `ExportedProgram.module`; it must not be used afterwards.
    """
    graph = module.graph
    for node in graph.find_nodes(op="call_module", target="_guards_fn"):
        # Input guards, which the next export adds again.
        graph.erase_node(node)
    constants = _constants(module)
    computed = [node for node in constants if node.op == "call_function"]
    names: dict[tuple, str] = {}
    for node in computed:
        value = constants[node]
        if isinstance(value, Tensor) and any(user not in constants for user in node.users):
            # Layers share windows, so nodes with the same storage share a buffer.
            storage = value.data_ptr(), value.dtype, value.shape, value.stride()
            name = names.setdefault(storage, f"constant_{node.name}")
            if not hasattr(module, name):
                module.register_buffer(name, value.clone(memory_format=torch.contiguous_format))
            with graph.inserting_before(node):
                node.replace_all_uses_with(graph.get_attr(name))
    for node in reversed(computed):
        graph.erase_node(node)
    graph.eliminate_dead_code()
    # A new module holds only the attributes that the graph still uses.
    frozen = GraphModule(module, graph)
    for name, parameter in list(frozen.named_parameters()):
        parent, _, leaf = name.rpartition(".")
        submodule = frozen.get_submodule(parent)
        delattr(submodule, leaf)
        submodule.register_buffer(leaf, parameter.detach().clone())
    return frozen


def _constants(module: GraphModule) -> dict[Node, Any]:
    """Returns the values of all nodes that do not depend on the input."""
    values: dict[Node, Any] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            parent, _, name = node.target.rpartition(".")
            values[node] = getattr(module.get_submodule(parent), name)
        elif node.op == "call_function" and all(part in values for part in node.all_input_nodes):
            args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = node.target(*args, **kwargs)
    return values


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
    """Suppresses warnings of the exporter about optional packages and unused names."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
