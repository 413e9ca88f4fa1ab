"""A baseline that remembers under which name and with which sizes it was built."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from gpo.model import checkpoint
from gpo.model.problem import Problem, UnsupportedGeometryError
from gpo.model.registry import BASELINES, find_baseline
from gpo.numerics.domain import Domain
from gpo.settings_files import CheckpointError, read_json


class RegisteredModel(nn.Module):
    """A baseline that can be saved, loaded and moved to another grid.

    Args:
        name: A name of `BASELINES`.
        problem: The data it is built for.
        config: Its sizes; the defaults when not given.
    """

    def __init__(self, name: str, problem: Problem, config: Any = None) -> None:
        super().__init__()
        baseline = find_baseline(name)
        self.name, self.problem = name, problem
        self.config = baseline.config() if config is None else config
        try:
            self.network = baseline.build(problem, self.config)
        except UnsupportedGeometryError as error:
            raise UnsupportedGeometryError(f"{name} cannot take these sites: {error}") from error

    def forward(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the predicted field at the sites."""
        return self.network(values, coords, weights=weights)

    def on_grid(self, grid_shape: tuple[int, ...]) -> "RegisteredModel":
        """Returns the same model for a grid of another size; raises the reason where there is none."""
        problem = replace(self.problem, grid_shape=grid_shape)
        other = RegisteredModel(self.name, problem, self.config)
        mine, theirs = self.state_dict(), other.state_dict()
        if {name: part.shape for name, part in mine.items()} != {
            name: part.shape for name, part in theirs.items()
        }:
            raise UnsupportedGeometryError("its weights belong to one resolution")
        other.load_state_dict(mine)
        other.train(self.training)
        return other.to(next(self.parameters()).device)

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes `config.json`, with name, problem and sizes, and `model.safetensors` into `folder`."""
        stored = _Stored(asdict(self.problem), asdict(self.config))
        checkpoint.save(self.network, stored, folder, model_type=self.name)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "RegisteredModel":
        """Returns the model that `save_pretrained` wrote."""
        name, path = checkpoint.model_type(folder), Path(folder) / checkpoint.CONFIG_NAME
        if name not in BASELINES:
            raise CheckpointError(
                f"{path}: field `model_type` must be one of "
                f"{', '.join(BASELINES)}, got {name!r}. A model of your own must be registered "
                "before it is loaded."
            )
        stored = read_json(path)
        for key in checkpoint.ABOUT:
            stored.pop(key, None)
        # gpo 0.1.0 kept the fields of the problem alone, and knew no other sizes than the defaults.
        is_old = "problem" not in stored
        if is_old:
            stored = {"problem": stored, "config": {}}
        stored = checkpoint.build(_Stored, stored, str(path))
        model = cls(
            name, stored.read_problem(path), None if is_old else stored.read_config(name, path)
        )
        try:
            checkpoint.load_weights(model.network, folder)
        except CheckpointError as error:
            if is_old:
                raise CheckpointError(
                    f"{error} The folder is of gpo 0.1.0, which can load it."
                ) from error
            raise
        return model


@dataclass(frozen=True)
class _Stored:
    """What `config.json` holds beside the name."""

    problem: dict
    config: dict

    def read_problem(self, path: Path) -> Problem:
        problem = dict(self.problem)
        if isinstance(problem.get("domain"), dict):
            problem["domain"] = checkpoint.build(Domain, problem["domain"], f"{path}: domain")
        return checkpoint.build(Problem, problem, f"{path}: problem")

    def read_config(self, name: str, path: Path) -> Any:
        return checkpoint.build(BASELINES[name].config, self.config, f"{path}: config")
