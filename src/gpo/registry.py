"""Registries of models, data sets, commands, readers, metrics and figures by name.

Plug-ins extend them: a distribution with an entry point in the group `gpo.plugins` names a module,
which is imported when a registry is first read and registers its items. An item that is registered
as `"module:attribute"` is imported when it is first used, so that plug-ins start fast.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Generic, TypeVar

GROUP = "gpo.plugins"
"""Group of the entry points of plug-ins."""

Item = TypeVar("Item")


_is_loaded = False
_missing: list[str] = []


def load_plugins() -> None:
    """Imports the modules of installed plug-ins, once; those with a missing package are left out."""
    global _is_loaded
    if _is_loaded:
        return
    # Set first, because plug-ins read registries while they are imported.
    _is_loaded = True
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            point.load()
        except ModuleNotFoundError as error:
            package, name = str(error.name).partition(".")[0], point.dist and point.dist.name
            if package == "gpo":
                raise
            _missing.append(
                f"The plug-in {point.name} is left out, because the package {package} is not "
                f"installed. Install it: pip install --force-reinstall {name or package}."
            )


def missing_plugins() -> list[str]:
    """Returns a sentence for every plug-in that was left out, with what to install."""
    load_plugins()
    return _missing


def resolve(item: Item | str) -> Item:
    """Returns an item; text of the form `"module:attribute"` is imported."""
    if not isinstance(item, str):
        return item
    module, attribute = item.split(":")
    return getattr(import_module(module), attribute)


class Registry(MutableMapping[str, Item], Generic[Item]):
    """Items by name, in the order of registration."""

    def __init__(self, kind: str, items: Mapping[str, Item | str] | None = None) -> None:
        """Creates a registry.

        Args:
            kind: Kind of the items in error messages, such as "model".
            items: Initial items by name; text is `"module:attribute"`.
        """
        self.kind = kind
        self._items: dict[str, Item | str] = dict(items or {})

    def register(self, name: str, item: Item | str) -> None:
        """Adds an item under a new name.

        Args:
            name: How commands and configurations refer to it.
            item: The item, or `"module:attribute"`, imported when first used.
        """
        if name in self._items:
            raise ValueError(
                f"The {self.kind} {name!r} is already registered. Choose another name."
            )
        self._items[name] = item

    def __getitem__(self, name: str) -> Item:
        load_plugins()
        if name not in self._items:
            raise KeyError(name)
        item = self._items[name] = resolve(self._items[name])
        return item

    def find(self, name: str) -> Item:
        """Returns an item, or raises a `ValueError` that lists the registered names."""
        if name not in self:
            raise ValueError(f"`{self.kind}` must be one of {', '.join(self)}, got {name!r}.")
        return self[name]

    def __contains__(self, name: object) -> bool:
        load_plugins()
        return name in self._items

    def __setitem__(self, name: str, item: Item | str) -> None:
        self._items[name] = item

    def __delitem__(self, name: str) -> None:
        del self._items[name]

    def __iter__(self) -> Iterator[str]:
        load_plugins()
        return iter(tuple(self._items))

    def __len__(self) -> int:
        load_plugins()
        return len(self._items)
