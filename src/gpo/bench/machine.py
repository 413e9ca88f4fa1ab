"""With what a benchmark was made: versions, and the CPU by its model alone."""

import platform
import sys
from importlib.metadata import version
from pathlib import Path

import torch


def describe_machine(command: str) -> list[str]:
    """Returns lines to stand below a table: command, versions, CPU."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "lightning", "numpy"))
    python = ".".join(str(part) for part in sys.version_info[:3])
    device = f"; {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return [f"Command: `{command}`", f"Python {python}, {packages}; {_cpu()}{device}"]


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} threads" if names else platform.machine()
