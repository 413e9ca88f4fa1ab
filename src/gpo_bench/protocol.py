"""How models are compared: which ones, under which rules, on which machine.

The rules are the same for all of them, ours included.
"""

import platform
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch

from gpo.model.registry import listed_models
from gpo.training.config import RECIPES

LEARNING_RATES = (5e-4, 2e-3, 6e-3)
"""The grid that every model's learning rate is chosen from, on validation data."""
MODELS = tuple(listed_models())
"""All models that are compared, by the names of their rows."""


@dataclass(frozen=True)
class Protocol:
    """What every experiment of a table is given, whichever model is in it."""

    name: Literal["budget", "steps", "paper"] = "budget"
    """budget: the same CPU seconds; steps: the same optimiser steps; paper: the paper's epochs."""
    amount: float = 120.0
    """CPU seconds, or steps; epochs are the paper's."""
    preset: Literal["quick", "default", "paper"] = "quick"
    """Size of made data."""

    def settings(self) -> dict[str, Any]:
        """Returns what a run of this protocol sets."""
        if self.name == "paper":
            return {**RECIPES["paper"], "preset": "paper"}
        limit = (
            {"budget_cpu": self.amount} if self.name == "budget" else {"steps": int(self.amount)}
        )
        endless = {"epochs": 100_000, "patience": 100_000}
        return {"preset": self.preset, "noise": 0.0, **endless, **limit}

    def tuning(self) -> dict[str, Any]:
        """Returns what a run that only compares learning rates sets: a sixth of the amount."""
        settings = self.settings()
        for name in ("budget_cpu", "steps"):
            if name in settings:
                settings[name] = type(settings[name])(settings[name] / 6)
        return settings

    def threads(self, available: int) -> int:
        """Returns how many threads a run takes: CPU seconds of several would count their waiting."""
        return 1 if self.name == "budget" else available

    @property
    def learning_rates(self) -> tuple[float, ...]:
        """The learning rates to choose from; the paper's protocol fixes its own."""
        return (1e-3,) if self.name == "paper" else LEARNING_RATES

    def __str__(self) -> str:
        """Returns the rules in words, which stand below every table."""
        if self.name == "paper":
            return "protocol paper: AdamW from 1e-3 with StepLR, up to 500 epochs, early stopping"
        unit = "CPU seconds of training" if self.name == "budget" else "steps"
        rates = ", ".join(f"{rate:g}" for rate in self.learning_rates)
        return (
            f"protocol {self.name}: {self.amount:g} {unit} for every model, increments, "
            f"cosine schedule; learning rate out of {rates}, the best on validation data after "
            f"{self.tuning().get('budget_cpu') or self.tuning().get('steps'):g} {unit}"
        )


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
