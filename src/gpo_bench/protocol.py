"""The protocol of all comparisons: models, training budget, optimizers, learning rates and machine.

It is the same for all models, including gpo.
"""

import platform
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch

from gpo.model.registry import OptimizerName, listed_models
from gpo.training.config import RECIPES

OPTIMIZERS: tuple[OptimizerName, ...] = ("adamw", "muon")
LEARNING_RATES = (5e-4, 2e-3, 6e-3)
"""Each model has the pair of optimizer and learning rate that is best on validation data."""
SHORT, LONG = 6, 2
"""Divisors of the budget: of runs for every pair, and for the best rate of each optimizer."""
MODELS = tuple(listed_models())
"""Names of all models, which are also the names of table rows."""


@dataclass(frozen=True)
class Candidate:
    """A pair of optimizer and learning rate; the fields are settings of a run."""

    optimizer: OptimizerName
    learning_rate: float

    @classmethod
    def parse(cls, text: str) -> "Candidate":
        """Returns the candidate of a text; the optimizer is AdamW if the text has none."""
        optimizer, _, rate = text.rpartition(" ")
        return cls("muon" if optimizer == "muon" else "adamw", float(rate))

    def __str__(self) -> str:
        """Returns the learning rate, after the name of the optimizer unless that is AdamW."""
        name = "" if self.optimizer == "adamw" else f"{self.optimizer} "
        return f"{name}{self.learning_rate:g}"


@dataclass(frozen=True)
class Protocol:
    """The training budget of each experiment, which does not depend on the model."""

    name: Literal["budget", "steps", "paper"] = "budget"
    """Equal CPU seconds (budget), equal optimizer steps (steps), or the paper's epochs (paper)."""
    amount: float = 120.0
    """CPU seconds or steps per experiment; not used with the paper's epochs."""
    preset: Literal["quick", "default", "paper"] = "quick"
    """Size of generated data."""

    def settings(self) -> dict[str, Any]:
        """Returns the settings of a run."""
        if self.name == "paper":
            return {**RECIPES["paper"], "preset": "paper"}
        limit = (
            {"budget_cpu": self.amount} if self.name == "budget" else {"steps": int(self.amount)}
        )
        unlimited = {"epochs": 100_000, "patience": 100_000}
        return {"preset": self.preset, "noise": 0.0, **unlimited, **limit}

    def tuning(self, fraction: int) -> dict[str, Any]:
        """Returns the settings of a run that tests a candidate with a fraction of the budget."""
        settings = self.settings()
        for name in ("budget_cpu", "steps"):
            if name in settings:
                settings[name] = type(settings[name])(settings[name] / fraction)
        return settings

    def threads(self, available: int) -> int:
        """Returns the threads of a run; one for CPU seconds, which would include idle threads."""
        return 1 if self.name == "budget" else available

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The pairs of optimizer and learning rate, AdamW first; the paper's protocol has one."""
        if self.name == "paper":
            return (Candidate("adamw", 1e-3),)
        return tuple(Candidate(name, rate) for name in OPTIMIZERS for rate in LEARNING_RATES)

    def __str__(self) -> str:
        """Returns a description for the notes of a table and for `experiments.json`."""
        if self.name == "paper":
            return "protocol paper: AdamW from 1e-3 with StepLR, up to 500 epochs, early stopping"
        unit = "CPU seconds of training" if self.name == "budget" else "steps"
        rates = ", ".join(f"{rate:g}" for rate in LEARNING_RATES)
        return (
            f"protocol {self.name}: {self.amount:g} {unit} for every model, increments, "
            f"cosine schedule; optimizer AdamW or Muon and learning rate out of {rates}, selected on "
            f"validation data: the best rate of each optimizer after {self.amount / SHORT:g} {unit}, "
            f"of these two the better one after {self.amount / LONG:g}, in addition to the "
            f"{self.amount:g}"
        )


def describe_machine(command: str) -> list[str]:
    """Returns notes for a table: command, versions, and CPU or GPU."""
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
