"""Writes the SHA-256 of every wheel of the pinned versions into a file of requirements.

`python -m tests.hashes requirements.txt --index ADDRESS [--wheel FILE ...]`, where ADDRESS is a package
index in the simple format, such as the one that pip uses, and FILE a wheel that lies elsewhere. Wheels of all
platforms are listed, so that one file serves all of them; archives of source are not: building one
would run code that nothing checked.
"""

import argparse
import hashlib
import re
import sys
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

LINK = re.compile(r'href="([^"#]+)#sha256=([0-9a-f]{64})"')
PIN = re.compile(r"^([\w.-]+)==([^\s\\]+)")
OLDEST = 311
"""The oldest Python that the package runs on, as wheels write it."""
OTHER_PLATFORMS = ("musllinux", "i686", "win32", "armv7l", "ppc64le", "s390x", "riscv64", "ios_",
                   "android", "loongarch64", "emscripten", "wasm", "pyodide")  # fmt: skip
"""Platforms that no test of ours runs on: their wheels are not listed."""


def is_wanted(name: str, pin: str, version: str) -> bool:
    """Returns whether a file is a wheel of a pinned version that one of our platforms may install."""
    try:
        found, number, _, tags = parse_wheel_filename(name)
    except InvalidWheelFilename:
        return False
    if found != canonicalize_name(pin) or number.public != Version(version).public:
        return False
    return any(_runs(tag.interpreter, tag.abi, tag.platform) for tag in tags)


def _runs(interpreter: str, abi: str, platform: str) -> bool:
    if any(other in platform for other in OTHER_PLATFORMS):
        return False
    number = re.fullmatch(r"cp(\d+)", interpreter)
    if number is None:
        return interpreter.startswith("py") and "2" not in interpreter and "pypy" not in interpreter
    return abi == "abi3" or (int(number[1]) >= OLDEST and not abi.endswith("t"))


def listed(index: str, pin: str, version: str) -> set[str]:
    """Returns the sums of all wanted wheels that an index lists."""
    address = f"{index.rstrip('/')}/{canonicalize_name(pin)}/"
    with urllib.request.urlopen(address, timeout=60) as answer:
        page = answer.read().decode()
    names = (
        (urllib.parse.unquote(link.rsplit("/", 1)[-1]), sum_) for link, sum_ in LINK.findall(page)
    )
    return {sum_ for name, sum_ in names if is_wanted(name, pin, version)}


def written(pins: Sequence[tuple[str, str]], sums: dict[str, set[str]], comments: str) -> str:
    """Returns the content of `requirements.txt`."""
    lines = [comments.rstrip()]
    for name, version in pins:
        hashes = "".join(f" \\\n    --hash=sha256:{one}" for one in sorted(sums[name]))
        lines.append(f"{name}=={version}{hashes}")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> None:
    """Rewrites the file; refuses a pin that no index has a wheel of."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("requirements", type=Path)
    parser.add_argument("--index", action="append", required=True)
    parser.add_argument("--wheel", action="append", type=Path, default=[])
    asked = parser.parse_args(arguments)
    text = asked.requirements.read_text()
    pins = [(m[1], m[2]) for m in map(PIN.match, text.splitlines()) if m]
    sums: dict[str, set[str]] = {}
    for name, version in pins:
        found = set[str]().union(*(listed(index, name, version) for index in asked.index))
        local = (one for one in asked.wheel if is_wanted(one.name, name, version))
        found |= {hashlib.sha256(one.read_bytes()).hexdigest() for one in local}
        if not found:
            sys.exit(f"{name}=={version}: no index has a wheel of it.")
        sums[name] = found
    comments = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    asked.requirements.write_text(written(pins, sums, comments))


if __name__ == "__main__":
    main(sys.argv[1:])
