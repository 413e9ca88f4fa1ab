"""Optional packages, imported where they are used."""

import re
from importlib import import_module
from importlib.metadata import requires
from types import ModuleType
from typing import NoReturn


class MissingPackageError(ImportError):
    """An optional package is not installed; the message names the extra that installs it."""


def require(module: str, extra: str, purpose: str = "This") -> ModuleType:
    """Imports a module; if a package is missing, the error names the extra to install.

    Args:
        module: An optional package, or a module of gpo that imports optional packages.
        extra: The extra of gpo that installs them.
        purpose: Subject of the message, such as "Reading GRIB".
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise_missing_package(error, extra, purpose)


def raise_missing_package(
    error: ModuleNotFoundError, extra: str | None, purpose: str = "This"
) -> NoReturn:
    """Raises a `MissingPackageError` that says what to install; our own bugs are raised as they are.

    Args:
        error: The failed import.
        extra: The extra of gpo that brings the package; None for a package that is no part of gpo.
        purpose: Subject of the message, such as "Reading GRIB".
    """
    package, _, module = (error.name or "").partition(".")
    if package == "gpo" or (package.startswith("gpo_") and module):
        raise error
    install = package if extra is None else f"'gpo[{extra}]'"
    raise MissingPackageError(
        f"{purpose} needs the package {package}, which is not installed. "
        f"Install it: pip install {install}.",
        name=package,
    ) from error


def extra_of(package: str) -> str | None:
    """Returns the extra of gpo that installs a package; None if there is none."""
    for line in requires("gpo") or ():
        found = re.match(r"([\w.-]+)\b(?!\[).*extra == ['\"](\w+)", line)
        if found is not None and found[1].lower() == package.lower():
            return found[2]
    return None
