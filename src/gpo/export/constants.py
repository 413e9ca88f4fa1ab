"""Whatever a program computes from no input is computed once, and kept.

Of a model on fixed sites that is a lot: features of places, what layers make of them, filters.
"""

from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg


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
