"""A forecaster on fixed sites as a program: traced once, with constants computed."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram, export
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from gpo.forecast.fixed import FixedForecaster


def export_program(fixed: FixedForecaster) -> ExportedProgram:
    """Returns the program of a forecaster: frames in, the predicted frame out, in any batch size.

    It has the operations of the model, in its order: answers are the same to the last digit,
    but for what libraries of other processors round differently.
    """
    shape = fixed.frames_shape
    module = _traced(fixed.eval(), shape).module()
    assert isinstance(module, GraphModule)
    return _traced(with_constants(module), shape)


def _traced(module: torch.nn.Module, shape: Sequence[int]) -> ExportedProgram:
    # Two samples stand for any number; one would be taken for a size that never changes.
    frames = torch.zeros(2, *shape)
    with torch.no_grad():
        return export(module, (frames,), dynamic_shapes=({0: Dim("batch", min=1)},))


# >>> """Whatever a program computes from no input is computed once, and kept.
#
# Of a model on fixed sites that is a lot: features of places, what layers make of them, filters.
# """


@torch.no_grad()
def with_constants(module: GraphModule) -> GraphModule:
    """Returns a module that computes the same from as little as can be, and learns no more.

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
            # Layers look at the same windows: what is one thing in memory is kept once.
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
    """Returns the values of all nodes that no input has a part in."""
    known: dict[Node, Any] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            holder, _, name = node.target.rpartition(".")
            known[node] = getattr(module.get_submodule(holder), name)
        elif node.op == "call_function" and all(part in known for part in node.all_input_nodes):
            args, kwargs = map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = node.target(*args, **kwargs)
    return known
