"""What every model has, whichever it is: a problem, a configuration, a name, and files."""

from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gpo.model import checkpoint
from gpo.model.problem import Problem, UnsupportedGeometryError
from gpo.model.registry import MODELS, listed_models
from gpo.registry import missing_plugins
from gpo.settings_files import CheckpointError

if TYPE_CHECKING:
    from gpo.model.operator import GaussianParticleOperator

Model = TypeVar("Model", bound="AbstractModel")


class AbstractModel(nn.Module, ABC):
    """Maps a field on sites to a field on sites, in normalised units."""

    def __init__(self, name: str, problem: Problem, config: Any) -> None:
        """Keeps what a model is built from.

        Args:
            name: How the model is registered.
            problem: Channels, domain and kind of sites.
            config: The configuration, a data class.
        """
        super().__init__()
        self.name, self.problem, self.config = name, problem, config

    @abstractmethod
    def forward(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the predicted field at the sites."""

    @property
    def operator(self) -> "GaussianParticleOperator | None":
        """The model as an operator, which answers anywhere and can be tapped; None for a baseline."""
        return None

    @property
    def fixed_shape(self) -> tuple[int, ...]:
        """The grid that the model takes and no other; empty where it takes any sites."""
        return self.problem.mesh_shape

    @property
    def stored_module(self) -> nn.Module:
        """The module whose parameters are saved."""
        return self

    @property
    def dtype(self) -> torch.dtype:
        """The type of the real parameters, which `values` must have too."""
        kinds = (part.dtype for part in self.parameters() if not part.is_complex())
        return next(kinds, torch.get_default_dtype())

    @property
    def num_parameters(self) -> int:
        """Number of parameters; a complex one counts once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def on_grid(self, grid_shape: tuple[int, ...]) -> "AbstractModel":
        """Returns the model for data of the same kind on a grid of another size."""
        return self

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes `config.json`, with name, problem and sizes, and `model.safetensors` into `folder`."""
        checkpoint.save(self.stored_module, self.name, self.problem, self.config, folder)

    @classmethod
    def from_pretrained(cls: type[Model], folder: str | Path) -> Model:
        """Returns the model that `save_pretrained` wrote."""
        model = load_model(folder)
        if not isinstance(model, cls):
            raise CheckpointError(
                f"{Path(folder) / checkpoint.CONFIG_NAME}: field `model_type` must be that of a "
                f"{cls.__name__}, got {model.name!r}."
            )
        return model


class RegisteredModel(AbstractModel):
    """A network of any kind, which is called at its sites only."""

    def __init__(self, name: str, problem: Problem, config: Any, network: nn.Module) -> None:
        super().__init__(name, problem, config)
        self.network = network

    @property
    def fixed_shape(self) -> tuple[int, ...]:
        """The grid that the network was built for."""
        return self.problem.grid_shape

    @property
    def stored_module(self) -> nn.Module:
        """The network."""
        return self.network

    def forward(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the predicted field at the sites."""
        return self.network(values, coords, weights=weights)

    def on_grid(self, grid_shape: tuple[int, ...]) -> AbstractModel:
        """Returns the same model for a grid of another size; raises the reason where there is none."""
        other = build_model(self.name, replace(self.problem, grid_shape=grid_shape), self.config)
        shapes = [
            {name: part.shape for name, part in model.state_dict().items()}
            for model in (self, other)
        ]
        if shapes[0] != shapes[1]:
            raise UnsupportedGeometryError("its weights belong to one resolution")
        other.load_state_dict(self.state_dict())
        other.train(self.training)
        return other.to(next(self.parameters()).device)


def build_model(name: str, problem: Problem, config: Any = None) -> AbstractModel:
    """Returns a new model, with the default sizes where no others are given.

    Args:
        name: How it is registered.
        problem: Channels, domain and kind of sites.
        config: Its configuration.
    """
    if name not in MODELS:
        message = f"`model` must be one of {', '.join(listed_models())}, got {name!r}."
        raise ValueError(" ".join([message, *missing_plugins()]))
    config = MODELS[name].config() if config is None else config
    try:
        network = MODELS[name].build(problem, config)
    except UnsupportedGeometryError as error:
        raise UnsupportedGeometryError(f"{name} cannot take these sites: {error}") from error
    is_model = isinstance(network, AbstractModel)
    return network if is_model else RegisteredModel(name, problem, config, network)


def load_model(folder: str | Path) -> AbstractModel:
    """Returns the model in a folder, whichever it is."""
    stored = checkpoint.read(folder)
    if stored.name not in MODELS:
        raise CheckpointError(
            f"{stored.path}: field `model_type` must be one of {', '.join(MODELS)}, got "
            f"{stored.name!r}. A model of your own must be registered before it is loaded."
            + "".join(f" {note}" for note in missing_plugins())
        )
    config, has_sizes = None, stored.config is not None
    if stored.config is not None:
        kind = MODELS[stored.name].config
        config = checkpoint.build(kind, stored.config, f"{stored.path}: config")
    # Other networks may have buffers that no file holds.
    with torch.device("meta" if stored.name in checkpoint.OUR_MODELS else "cpu"):
        model = build_model(stored.name, stored.build_problem(), config)
    try:
        checkpoint.load_weights(model.stored_module, stored)
    except CheckpointError as error:
        if has_sizes:
            raise
        advice = "The folder is of gpo 0.1.0, which can load it."
        raise CheckpointError(f"{error} {advice}") from error
    return model
