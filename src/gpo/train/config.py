"""One typed configuration of a run: what is learned from, by which model, and how."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from tyro.conf import Positional

from gpo.files import write_text
from gpo.model.artifact import build


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that decides the outcome of a run; saved with it."""

    benchmark: Positional[str | None] = None
    """One of the paper's benchmarks, such as ns2d; its data is made where it can be."""
    data: str | None = None
    """A file or folder of your own, in place of a benchmark."""
    var: tuple[str, ...] = ()
    """Variables to learn; all that belong together when not given."""
    select: tuple[str, ...] = ()
    """One value of every extra dimension by name, such as level=500."""
    preset: Literal["quick", "default", "paper"] = "default"
    """Size of the data a benchmark is made with, and of the budget."""
    history: int = 1
    """Frames that predict, `lead` steps apart."""
    lead: int = 1
    """Steps from the last of them to the predicted frame."""
    predict: Literal["state", "increment"] = "increment"
    """Whether the model gives the next state, or what is to be added to the last one."""
    hidden_dim: int = 64
    """Width of the model."""
    num_layers: int = 4
    """Stages of the model."""
    num_heads: int = 4
    """Heads per stage."""
    num_gaussians: int = 16
    """Gaussians per site and modes per head."""
    centers: Literal["absolute", "displacement"] = "displacement"
    """How the encoder predicts centers."""
    batch_size: int = 8
    """Examples per step."""
    learning_rate: float = 1e-3
    """Of AdamW."""
    weight_decay: float = 1e-4
    """Of AdamW."""
    schedule: Literal["cosine", "step", "constant"] = "cosine"
    """How the learning rate falls over the budget; step halves it at every fifth of it."""
    epochs: int = 500
    """Passes over the training examples, at most."""
    budget_cpu: float | None = None
    """CPU seconds to train for, at most; comparisons on a noisy machine need it."""
    patience: int = 50
    """Epochs without a better validation score after which training stops."""
    clip: float = 1.0
    """Largest gradient norm."""
    seed: int = 0
    """Of initial weights, of the order of examples and of Fourier features."""

    def __post_init__(self) -> None:
        """Refuses what no run can be made from."""
        if (self.benchmark is None) == (self.data is None):
            raise ValueError("Name either a benchmark, such as ns2d, or a file with --data.")
        for name in ("history", "lead", "batch_size", "epochs", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, got {getattr(self, name)}.")
        for name in ("learning_rate", "clip"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` must be positive, got {getattr(self, name)}.")
        if self.budget_cpu is not None and not self.budget_cpu > 0:
            raise ValueError(f"`budget_cpu` must be positive, got {self.budget_cpu}.")

    @property
    def name(self) -> str:
        """What the run is called when it is given no folder."""
        return self.benchmark or Path(str(self.data)).stem

    def save(self, path: Path) -> None:
        """Writes the whole configuration as YAML."""
        plain = {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items()}
        write_text(path, yaml.safe_dump(plain, sort_keys=False))

    @classmethod
    def load(cls, path: Path) -> "RunConfig":
        """Returns the configuration in a YAML file; refuses unknown fields by name."""
        stored: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(stored, dict):
            raise ValueError(f"{path}: must be a YAML mapping, got {type(stored).__name__}.")
        return build(cls, stored, str(path))


QUICK = {"budget_cpu": 240.0}
"""What the preset quick changes where nothing else is said."""
