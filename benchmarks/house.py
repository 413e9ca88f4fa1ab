"""Numbers about the code itself: its packages, its imports, its public names, one call of the model.

Run as `python benchmarks/house.py`; prints a Markdown table and writes nothing. `--src DIR` takes
another source tree, such as that of an earlier commit.
"""

import argparse
import ast
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parent.parent
REPEATS = 5
"""Fresh processes behind every median of CPU seconds."""
KINDS = (
    "GaussianParticleOperator|GaussianField|RegisteredModel|AbstractModel|PaperConfig|"
    "GeometricConfig|OperatorConfig|FieldConfig|PaperSettings|OperatorSettings|GeometricSettings|"
    "WaveModes|ContentModes|AttentionModes"
)
"""Classes that stand for one kind of model."""

Graph = dict[str, frozenset[str]]
"""By module, the modules that it imports."""


def main() -> None:
    """Prints all numbers, one row each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--src", type=Path, default=ROOT / "src", help="folder of the packages")
    source: Path = parser.parse_args().src.resolve()
    sys.path.insert(0, str(source))
    rows: dict[str, object] = {}
    packages = sorted(path for path in source.glob("gpo*") if (path / "__init__.py").exists())
    for package in packages:
        files = sorted(package.rglob("*.py"))
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
        rows[f"files and lines of {package.name}"] = f"{len(files)} files, {lines:,} lines"
    graph = import_graph(packages, is_deferred=False)
    chain = longest_chain(graph)
    rows["longest chain of imports"] = f"{len(chain)}: {' → '.join(chain)}"
    cycles = find_cycles(import_graph(packages, is_deferred=True))
    named = "; ".join(" ↔ ".join(cycle) for cycle in cycles)
    rows["import cycles, deferred imports included"] = (
        f"{len(cycles)}{': ' if cycles else ''}{named}"
    )
    rows["modules that one other imports"] = len(imported_once(graph))
    import gpo

    rows["public names of gpo"] = len(gpo.__all__)
    rows["isinstance on kinds of models"] = count_switches(packages)
    rows["README"] = "{} words, {} links".format(*readme_size((ROOT / "README.md").read_text()))
    for num_transports in (0, 1, 2) if hasattr(gpo, "OperatorConfig") else (None,):
        counted = "default" if num_transports is None else f"{num_transports} with transport"
        for name, calls in forward_calls(source, num_transports).items():
            rows[f"forward of four layers, {counted}, {name}"] = (
                f"{calls.calls} calls, {calls.switches} file switches, {len(calls.types)} types"
            )
    method = [
        source / "gpo/model" / f"{name}.py" for name in ("operator", "wave_layer", "transport")
    ]
    if all(path.exists() for path in method):
        lines = [len(path.read_text(encoding="utf-8").splitlines()) for path in method]
        rows["operator.py, wave_layer.py, transport.py"] = (
            f"{' + '.join(map(str, lines))} = {sum(lines)} lines"
        )
    torch_seconds = cpu_seconds(source, "-c", "import torch")
    for name, arguments in {
        "import gpo": ("-c", "import gpo"),
        "gpo --help": ("-m", "gpo", "--help"),
        "gpo run --help": ("-m", "gpo", "run", "--help"),
    }.items():
        seconds = cpu_seconds(source, *arguments)
        rows[f"{name} / import torch"] = f"{seconds / torch_seconds:.2f}"
    print("| | |\n|---|---|")
    for name, value in rows.items():
        print(f"| {name} | {value} |")


def import_graph(packages: list[Path], *, is_deferred: bool) -> Graph:
    """Returns what every module imports of the packages.

    Args:
        packages: Their folders.
        is_deferred: Whether imports inside functions count, and modules that are named in text,
            such as `require("gpo.x")`; imports for type checkers never do.
    """
    files = {
        _module_name(path, package): path
        for package in packages
        for path in sorted(package.rglob("*.py"))
    }
    graph: Graph = {}
    for name, path in files.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        statements = _all_statements(tree.body) if is_deferred else tree.body
        targets = set(_imported(statements, files))
        if is_deferred:
            targets |= _required(tree, files)
        graph[name] = frozenset(targets - {name})
    return graph


def _module_name(path: Path, package: Path) -> str:
    parts = (package.name, *path.relative_to(package).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def _is_for_types(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test)


def _all_statements(statements: list[ast.stmt]) -> list[ast.stmt]:
    """Returns the import statements at any depth, those for type checkers left out."""
    found: list[ast.stmt] = []
    for statement in statements:
        if _is_for_types(statement):
            continue
        if isinstance(statement, ast.Import | ast.ImportFrom):
            found.append(statement)
        for name in ("body", "orelse", "finalbody", "handlers"):
            for inner in getattr(statement, name, []):
                body = inner.body if isinstance(inner, ast.ExceptHandler) else [inner]
                found += _all_statements(body)
    return found


def _imported(statements: list[ast.stmt], known: dict[str, Path]) -> Iterator[str]:
    for statement in statements:
        if isinstance(statement, ast.If) and not _is_for_types(statement):
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


def _required(tree: ast.AST, known: dict[str, Path]) -> set[str]:
    """Returns the modules that calls of `require` name."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
    names = (
        getattr(call.args[0], "value", None)
        for call in calls
        if getattr(call.func, "id", None) == "require"
    )
    return {name for name in names if name in known}


def find_cycles(graph: Graph) -> list[list[str]]:
    """Returns the groups of modules that import each other in a circle (Tarjan's algorithm)."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        numbers[name] = lowest[name] = len(numbers)
        stack.append(name)
        for target in sorted(graph[name]):
            if target not in numbers:
                visit(target)
                lowest[name] = min(lowest[name], lowest[target])
            elif target in stack:
                lowest[name] = min(lowest[name], numbers[target])
        if lowest[name] == numbers[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                groups.append(group)

    for name in graph:
        if name not in numbers:
            visit(name)
    return groups


def longest_chain(graph: Graph) -> tuple[str, ...]:
    """Returns the longest chain of modules of which each imports the next; there must be no cycle."""

    @cache
    def chain(name: str) -> tuple[str, ...]:
        return name, *max((chain(target) for target in sorted(graph[name])), key=len, default=())

    return max((chain(name) for name in graph), key=len)


def imported_once(graph: Graph) -> list[str]:
    """Returns the modules that exactly one other module imports."""
    return [name for name in graph if sum(name in targets for targets in graph.values()) == 1]


def count_switches(packages: list[Path]) -> int:
    """Returns how often code asks for the kind of a model."""
    pattern = re.compile(rf"isinstance\([^)]*\b({KINDS})\b")
    texts = (path.read_text(encoding="utf-8") for one in packages for path in one.rglob("*.py"))
    return sum(len(pattern.findall(text)) for text in texts)


def readme_size(text: str) -> tuple[int, int]:
    """Returns the number of words and of links of a Markdown text."""
    return len(text.split()), len(re.findall(r"\]\([^)]+\)", text))


class CallCounter:
    """Counts calls of Python functions defined below a folder, those that change the file, and types.

    A call changes the file where the nearest caller that is defined there too stands in another. A
    type is a class whose methods are called.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = f"{folder}{os.sep}"
        self.calls = self.switches = 0
        self.types: set[str] = set()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Is what `sys.setprofile` calls."""
        if event != "call" or not self._is_ours(frame):
            return
        self.calls += 1
        owner = frame.f_locals.get("self", frame.f_locals.get("cls"))
        if owner is not None:
            self.types.add(owner.__name__ if isinstance(owner, type) else type(owner).__name__)
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


def forward_calls(source: Path, num_transports: int | None) -> dict[str, CallCounter]:
    """Returns the calls of one forward of a four-layer model on a 16 x 16 periodic grid.

    Args:
        source: The source tree.
        num_transports: Layers with transport; None for those of 0.6, which has one.
    """
    import torch

    model, coords = _model(num_transports)
    values, queries = torch.randn(1, len(coords), 1), torch.rand(10, 2)
    counters: dict[str, CallCounter] = {}
    for name, options in {"at sites": {}, "at queries": {"queries": queries}}.items():
        with torch.no_grad():
            model(values, coords, **options)  # The first call fills caches.
            counters[name] = CallCounter(source / "gpo")
            with counters[name].counting():
                model(values, coords, **options)
    return counters


def _model(num_transports: int | None) -> tuple[Any, Any]:
    """Returns a model and the nodes of a grid, in this version or in 0.6."""
    import gpo

    domain = gpo.Domain.unit_box(2, periodic=True)
    coords, _ = domain.grid(16, 16)
    if num_transports is not None:
        config = gpo.OperatorConfig(num_layers=4, num_transports=num_transports)
        return gpo.GaussianParticleOperator(gpo.Problem(1, 1, domain), config).eval(), coords
    config = gpo.GeometricConfig(in_channels=1, out_channels=1, domain=domain)
    return gpo.GaussianParticleOperator(config).eval(), coords


def cpu_seconds(source: Path, *arguments: str) -> float:
    """Returns the median CPU time of fresh processes of this Python."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
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
