"""Runs a module whose process waits before it completes a certain file.

    python -m tests.held PATTERN COUNT GATE MODULE [ARGUMENT ...]

`gpo` writes every file beside its place and moves it there when it is complete. Before it moves a
file to a name that matches PATTERN for the COUNT-th time, the process waits until the file GATE
exists. A signal that a test sends in the meantime meets a process at work, however busy the machine is.
"""

import os
import runpy
import sys
import time
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

PAUSE = 0.01
"""Seconds between two looks for the gate."""


def hold(pattern: str, count: int, gate: Path) -> None:
    """Makes this process wait for the gate before it moves a file."""
    replace, num_moves = os.replace, 0

    def held_replace(source: Any, target: Any, **settings: Any) -> None:
        nonlocal num_moves
        num_moves += fnmatch(Path(target).name, pattern)
        while num_moves == count and not gate.exists():
            time.sleep(PAUSE)
        replace(source, target, **settings)

    os.replace = held_replace


if __name__ == "__main__":
    pattern, count, gate, module, *arguments = sys.argv[1:]
    hold(pattern, int(count), Path(gate))
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)
