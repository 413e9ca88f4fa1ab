"""A forecaster on fixed sites as a program, and its file: `.pt2` of torch, or `.onnx`.

The program is traced twice: between, all that depends on no input becomes a constant. Its description
is JSON inside the file: the extra file `gpo.json` of a `.pt2`, the metadata entry `gpo` of an `.onnx`.
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

from gpo.atomic_files import new_file, whole_file
from gpo.forecast.fixed import FixedForecaster
from gpo.optional import require

SUFFIXES = (".pt2", ".onnx")
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
"""What the extra `onnx` installs."""


def export_program(fixed: FixedForecaster) -> ExportedProgram:
    """Returns the program of a forecaster: frames in, the predicted frame out, in any batch size.

    It has the operations of the model in their order, so that predictions agree to the last digit
    on the same processor.
    """
    task = fixed.forecaster.task
    frames = torch.zeros(fixed.frames_shape, dtype=torch.double if task.needs_double else None)
    module = _traced(fixed.eval(), frames).module()
    assert isinstance(module, GraphModule)
    return _traced(with_constants(module), frames)


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


def check_output(path: Path) -> Path:
    """Returns a path that a program can be written to; raises an error before any work."""
    path = new_file(path, SUFFIXES)
    if path.suffix == ".onnx":
        require_onnx(f"Writing {path.name}")
    return path


def require_onnx(purpose: str) -> None:
    """Raises a `MissingPackageError` where a package of the extra `onnx` is missing."""
    for name in ONNX_PACKAGES:
        require(name, "onnx", purpose)


def _traced(module: torch.nn.Module, frames: Tensor) -> ExportedProgram:
    # Two samples stand for any number; one would be taken for a size that never changes.
    frames = torch.stack([frames, frames])
    with torch.no_grad():
        return export(module, (frames,), dynamic_shapes=({0: Dim("batch", min=1)},))


@torch.no_grad()
def with_constants(module: GraphModule) -> GraphModule:
    """Returns a module that has folded constants and no trainable parameters.

    On fixed sites most of a model depends on no input: features of coordinates, what layers make
    of them, filters. These are computed once and kept as buffers.

    Args:
        module: What `ExportedProgram.module` returns; it is used up.
    """
    graph = module.graph
    for node in graph.find_nodes(op="call_module", target="_guards_fn"):
        # Checks of the input, which the next export writes again.
        graph.erase_node(node)
    known = _known(module)
    computed = [node for node in known if node.op == "call_function"]
    names: dict[tuple, str] = {}
    for node in computed:
        value = known[node]
        if isinstance(value, Tensor) and any(user not in known for user in node.users):
            # Layers share windows: a tensor that is stored once is kept once.
            where = value.data_ptr(), value.dtype, value.shape, value.stride()
            name = names.setdefault(where, f"constant_{node.name}")
            if not hasattr(module, name):
                module.register_buffer(name, value.clone(memory_format=torch.contiguous_format))
            with graph.inserting_before(node):
                node.replace_all_uses_with(graph.get_attr(name))
    for node in reversed(computed):
        graph.erase_node(node)
    graph.eliminate_dead_code()
    # A new module has only what the graph still names.
    frozen = GraphModule(module, graph)
    for name, parameter in list(frozen.named_parameters()):
        holder, _, leaf = name.rpartition(".")
        owner = frozen.get_submodule(holder)
        delattr(owner, leaf)
        owner.register_buffer(leaf, parameter.detach().clone())
    return frozen


def _known(module: GraphModule) -> dict[Node, Any]:
    """Returns the values of all nodes that depend on no input."""
    known: dict[Node, Any] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            holder, _, name = node.target.rpartition(".")
            known[node] = getattr(module.get_submodule(holder), name)
        elif node.op == "call_function" and all(part in known for part in node.all_input_nodes):
            args, kwargs = map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = node.target(*args, **kwargs)
    return known


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
    """Suppresses warnings of the exporter about packages and names that are not used here."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
