"""Numbers about the code itself: its files, its imports, its public names, one call of the model.

Run as `python benchmarks/house.py`; prints a Markdown table and writes nothing.
"""

import ast
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import gpo
from gpo.training.config import RunConfig

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "gpo"
REPEATS = 5
"""Fresh processes behind every median of CPU seconds."""

Graph = dict[str, frozenset[str]]
"""By module, the modules that it imports at module level."""


def main() -> None:
    """Prints all numbers, one row each."""
    graph = import_graph(SOURCE)
    rows: dict[str, object] = {"files": len(graph)}
    cycle = find_cycle(graph)
    rows["import cycles"] = " → ".join(cycle) if cycle else "none"
    if not cycle:
        chain = longest_chain(graph)
        rows["longest chain of imports"] = f"{len(chain)}: {' → '.join(chain)}"
    rows["modules that one other imports"] = len(imported_once(graph))
    rows["public names"] = len(gpo.__all__)
    rows["README"] = "{} words, {} links".format(*readme_size((ROOT / "README.md").read_text()))
    for name, calls in forward_calls().items():
        rows[f"forward, {name}"] = f"{calls.calls} calls, {calls.switches} file switches"
    for config in (
        RunConfig,
        gpo.GeometricConfig,
        gpo.PaperConfig,
        gpo.FieldConfig,
        gpo.EncoderConfig,
    ):
        rows[f"fields of {config.__name__}"] = len(fields(config))
    torch_seconds = cpu_seconds("-c", "import torch")
    rows["import gpo / import torch"] = f"{cpu_seconds('-c', 'import gpo') / torch_seconds:.2f}"
    rows["gpo --help / import torch"] = f"{cpu_seconds('-m', 'gpo', '--help') / torch_seconds:.2f}"
    print("| | |\n|---|---|")
    for name, value in rows.items():
        print(f"| {name} | {value} |")


def import_graph(source: Path) -> Graph:
    """Returns what every module of a package imports of it at module level, `TYPE_CHECKING` apart."""
    files = {_module_name(path, source): path for path in sorted(source.rglob("*.py"))}
    graph: Graph = {}
    for name, path in files.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found = {target for target in _imported(tree.body, files) if target != name}
        graph[name] = frozenset(found)
    return graph


def _module_name(path: Path, source: Path) -> str:
    parts = (source.name, *path.relative_to(source).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def _imported(statements: list[ast.stmt], known: dict[str, Path]) -> Iterator[str]:
    for statement in statements:
        if isinstance(statement, ast.If) and "TYPE_CHECKING" not in ast.unparse(statement.test):
            yield from _imported([*statement.body, *statement.orelse], known)
        elif isinstance(statement, ast.Try):
            handlers = [inner for handler in statement.handlers for inner in handler.body]
            yield from _imported([*statement.body, *handlers, *statement.orelse], known)
        elif isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names if alias.name in known)
        elif isinstance(statement, ast.ImportFrom) and statement.module in known:
            for alias in statement.names:
                inner = f"{statement.module}.{alias.name}"
                yield inner if inner in known else statement.module


def find_cycle(graph: Graph) -> list[str]:
    """Returns modules that import each other in a circle, the first one again at the end; or none."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for target in sorted(graph[name]):
            if found := visit(target, [*path, name]):
                return found
        done.add(name)
        return []

    return next((found for name in graph if (found := visit(name, []))), [])


def longest_chain(graph: Graph) -> tuple[str, ...]:
    """Returns the longest chain of modules of which each imports the next; there must be no cycle."""

    @cache
    def chain(name: str) -> tuple[str, ...]:
        return name, *max((chain(target) for target in sorted(graph[name])), key=len, default=())

    return max((chain(name) for name in graph), key=len)


def imported_once(graph: Graph) -> list[str]:
    """Returns the modules that exactly one other module imports."""
    return [name for name in graph if sum(name in targets for targets in graph.values()) == 1]


def readme_size(text: str) -> tuple[int, int]:
    """Returns the number of words and of links of a Markdown text."""
    return len(text.split()), len(re.findall(r"\]\([^)]+\)", text))


class CallCounter:
    """Counts calls of Python functions defined below a folder, and those that change the file.

    A call changes the file where the nearest caller that is defined there too stands in another.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = f"{folder}{os.sep}"
        self.calls = self.switches = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Is what `sys.setprofile` calls."""
        if event != "call" or not self._is_ours(frame):
            return
        self.calls += 1
        caller = frame.f_back
        while caller is not None and not self._is_ours(caller):
            caller = caller.f_back
        self.switches += caller is not None and (
            caller.f_code.co_filename != frame.f_code.co_filename
        )

    def _is_ours(self, frame: FrameType) -> bool:
        return frame.f_code.co_filename.startswith(self.folder)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Counts within a `with` block."""
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)


def forward_calls() -> dict[str, CallCounter]:
    """Returns the calls of one forward of a one-layer model on a 16 x 16 periodic grid."""
    domain = gpo.Domain.unit_box(2, periodic=True)
    coords, _ = domain.grid(16, 16)
    config = gpo.GeometricConfig(in_channels=1, out_channels=1, domain=domain, num_layers=1)
    model = gpo.GaussianParticleOperator(config).eval()
    values = torch.randn(1, len(coords), 1)
    queries = torch.rand(10, 2)
    forwards: dict[str, Callable[[], Any]] = {
        "at the sites": lambda: model(values, coords),
        "at queries": lambda: model(values, coords, queries=queries),
    }
    counters: dict[str, CallCounter] = {}
    for name, forward in forwards.items():
        with torch.no_grad():
            forward()  # What is cached by the first call is no part of the others.
            counters[name] = CallCounter(SOURCE)
            with counters[name].counting():
                forward()
    return counters


def cpu_seconds(*arguments: str) -> float:
    """Returns the median CPU time of fresh processes of this Python."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    seconds: list[float] = []
    for _ in range(REPEATS):
        before = os.times()
        subprocess.run(
            [sys.executable, *arguments], check=True, capture_output=True, env=environment
        )
        after = os.times()
        used = after.children_user + after.children_system
        seconds.append(used - before.children_user - before.children_system)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
