"""Tensors inside data classes, tuples and lists: listed, or replaced."""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import fields, is_dataclass
from typing import TypeVar, cast

from torch import Tensor

Tree = TypeVar("Tree")


def tensors_of(tree: object) -> Iterator[Tensor]:
    """Yields all tensors inside, in a fixed order."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, tuple | list):
        for part in tree:
            yield from tensors_of(part)
    elif is_dataclass(tree) and not isinstance(tree, type):
        for field in fields(tree):
            yield from tensors_of(getattr(tree, field.name))


def with_tensors(tree: Tree, change: Callable[[Tensor], Tensor]) -> Tree:
    """Returns the tree with every tensor replaced, in the order of `tensors_of`."""
    if isinstance(tree, Tensor):
        return cast(Tree, change(tree))
    if isinstance(tree, tuple | list):
        return cast(Tree, type(tree)(with_tensors(part, change) for part in tree))
    if is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in fields(tree)]
        changed = {name: with_tensors(getattr(tree, name), change) for name in names}
        if any(changed[name] is not getattr(tree, name) for name in names):
            # Copied, not constructed: a placeholder may have another shape than the tensor.
            tree = copy(tree)
            for name, part in changed.items():
                object.__setattr__(tree, name, part)
    return tree
