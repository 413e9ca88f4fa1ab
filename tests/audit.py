"""Compares pinned and installed packages with the ranges in `pyproject.toml`: `python -m tests.audit`.

Packages that only others need are compared with the ranges of `tool.audit` and of those that need them,
and each must be pinned.

The ranges leave out versions with known holes; why each of them is there stands in `SECURITY.md`.
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).parents[1]


def ranges() -> list[Requirement]:
    """Returns what the package and all its extras ask for, and the ranges of indirect packages."""
    content = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    about, indirect = content["project"], content["tool"]["audit"]["indirect"]
    extras = about["optional-dependencies"].values()
    listed = [*about["dependencies"], *indirect, *(one for extra in extras for one in extra)]
    return [one for one in map(Requirement, listed) if one.name != "gpo"]


def pins() -> dict[str, str]:
    """Returns the pinned version of every package."""
    found = re.findall(r"^([\w.-]+)==(\S+)", (PROJECT / "requirements.txt").read_text(), re.M)
    return {canonicalize_name(name): pinned for name, pinned in found}


def problems() -> Iterator[str]:
    """Yields every package that is pinned or installed outside its range."""
    pinned = pins()
    for wanted in ranges():
        pin = pinned.get(canonicalize_name(wanted.name))
        if pin is None or pin not in wanted.specifier:
            yield f"requirements.txt pins {wanted.name} {pin}, must be {wanted.specifier}."
        try:
            installed = version(wanted.name)
        except PackageNotFoundError:
            continue
        if installed not in wanted.specifier:
            yield f"{wanted.name} {installed} is installed, must be {wanted.specifier}."
    yield from unmet(pinned)


def unmet(pinned: Mapping[str, str]) -> Iterator[str]:
    """Yields what pinned packages that are installed need of others, where the pins differ."""
    for name in pinned:
        try:
            needs = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:
            continue
        for wanted in needs:
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
                continue
            pin = pinned.get(canonicalize_name(wanted.name))
            if pin is None or not wanted.specifier.contains(pin, prereleases=True):
                yield f"requirements.txt pins {wanted.name} {pin}, but {name} needs {wanted.specifier or 'it'}."


if __name__ == "__main__":
    found = list(problems())
    print("\n".join(found) or "All packages lie within their ranges.")
    sys.exit(bool(found))
