"""All baselines by name, and a model that remembers under which name and with which sizes it was built.

A new baseline is one file, with the network and its configuration, and one line in `BASELINES`.
A model from outside of this package joins with `register_baseline`.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from gpo.baselines.amg import AMG, AMGConfig
from gpo.baselines.base import Problem, UnsupportedGeometryError
from gpo.baselines.cno import CNO, CNOConfig
from gpo.baselines.fno import FNO, FNOConfig
from gpo.baselines.galerkin import GalerkinConfig, GalerkinTransformer
from gpo.baselines.geo_fno import GeoFNO, GeoFNOConfig
from gpo.baselines.gnot import GNOT, GNOTConfig
from gpo.baselines.lno import LNO, LNOConfig
from gpo.baselines.lsm import LSM, LSMConfig
from gpo.baselines.m2no import M2NO, M2NOConfig
from gpo.baselines.ono import ONO, ONOConfig
from gpo.baselines.transolver import Transolver, TransolverConfig
from gpo.files import CheckpointError, check_fields, read_json
from gpo.model import checkpoint
from gpo.numerics.domain import Domain


@dataclass(frozen=True, kw_only=True)
class NoSettings:
    """The configuration of a baseline that has nothing to set."""


@dataclass(frozen=True)
class Baseline:
    """A network and the configuration that sets its sizes."""

    network: Callable[..., nn.Module]
    """Called with a `Problem` and, where there is anything to set, a configuration."""
    config: type[Any] = NoSettings
    """A frozen data class whose every field has a default."""

    def build(self, problem: Problem, config: Any = None) -> nn.Module:
        """Returns a new network, with the default sizes where no others are given."""
        if not fields(self.config):
            return self.network(problem)
        return self.network(problem, self.config() if config is None else config)


BASELINES: dict[str, Baseline] = {
    "fno": Baseline(FNO, FNOConfig),
    "geo-fno": Baseline(GeoFNO, GeoFNOConfig),
    "cno": Baseline(CNO, CNOConfig),
    "lsm": Baseline(LSM, LSMConfig),
    "m2no": Baseline(M2NO, M2NOConfig),
    "amg": Baseline(AMG, AMGConfig),
    "galerkin": Baseline(GalerkinTransformer, GalerkinConfig),
    "gnot": Baseline(GNOT, GNOTConfig),
    "transolver": Baseline(Transolver, TransolverConfig),
    "ono": Baseline(ONO, ONOConfig),
    "lno": Baseline(LNO, LNOConfig),
}
"""Every baseline by the name that commands and tables use."""


def register_baseline(
    name: str, network: Callable[..., nn.Module], config: type[Any] = NoSettings
) -> None:
    """Makes a model of one's own known to every command, under a name that is not taken.

    Args:
        name: What `--model` takes.
        network: A class whose objects are built as `network(problem, config)` and called as
            `model(values, coords, weights=...)`; `AbstractBaseline` checks and masks its input.
        config: A frozen data class with defaults and a docstring per field; left out, the network
            is built as `network(problem)`.
    """
    if name in ("gpo", *BASELINES):
        raise ValueError(f"`name` must not be taken, got {name!r}. Choose another.")
    BASELINES[name] = Baseline(network, config)


def baseline_config(name: str, settings: Mapping[str, object]) -> Any:
    """Returns the configuration of a baseline with some fields changed.

    Args:
        name: A name of `BASELINES`.
        settings: Values by field; one that is unknown or of another type is refused.
    """
    config = _find(name).config
    where = f"settings of {name}"
    return config(**check_fields(config, settings, where, error=CheckpointError))


class RegisteredModel(nn.Module):
    """A baseline that can be saved, loaded and moved to another grid.

    Args:
        name: A name of `BASELINES`.
        problem: The data it is built for.
        config: Its sizes; the defaults when not given.
    """

    def __init__(self, name: str, problem: Problem, config: Any = None) -> None:
        super().__init__()
        baseline = _find(name)
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


def _find(name: str) -> Baseline:
    if name not in BASELINES:
        raise ValueError(f"`model` must be one of gpo, {', '.join(BASELINES)}, got {name!r}.")
    return BASELINES[name]
