"""Optional packages, imported where they are used."""

from importlib import import_module
from types import ModuleType


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
        package = (error.name or module).split(".")[0]
        if package.split("_")[0] == "gpo":
            raise
        raise MissingPackageError(
            f"{purpose} needs the package {package}, which is not installed. "
            f"Install it: pip install 'gpo[{extra}]'.",
            name=package,
        ) from error
