"""Models by name: what `--model` takes, and what a model folder says it holds.

A new model is one file, with the network and its configuration, and one registration. Nothing here
imports torch.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from gpo.registry import Registry, resolve

if TYPE_CHECKING:
    from torch import nn

    from gpo.model.problem import Problem


OptimizerName = Literal["muon", "adamw"]
"""Muon updates matrices, and AdamW all other parameters; adamw is AdamW for all of them."""


@dataclass(frozen=True, kw_only=True)
class NoConfig:
    """The configuration of a model that has nothing to set."""


@dataclass(frozen=True)
class ModelEntry:
    """A network, the configuration that sets its sizes, and how it is trained by default."""

    network: Callable[..., "nn.Module"] | str
    """Called with a `Problem` and, where there is anything to set, a configuration; or
    `"module:attribute"`, from where it is imported when it is used."""
    config_class: type[Any] | str = NoConfig
    """A frozen data class whose every field has a default, or where to import it from."""
    learning_rate: float = 1e-3
    """Peak learning rate where a run sets none."""
    prepare: Callable[..., Any] | str | None = None
    """Called as `prepare(problem, config, seed)` before a run builds the model; returns the
    configuration to build, with what depends on problem and seed filled in."""
    is_listed: bool = True
    """Whether `--model` offers it."""
    optimizer: OptimizerName = "adamw"
    """The optimizer where a run sets none."""
    is_operator: bool = False
    """Whether the network is a `GaussianParticleOperator`: its memory is planned before training, and
    `--preset paper` sets its sizes to those of the paper's table."""

    @property
    def config(self) -> type[Any]:
        """The configuration class."""
        return resolve(self.config_class)

    def prepared(self, problem: "Problem", config: Any, seed: int) -> Any:
        """Returns the configuration that a run builds."""
        return config if self.prepare is None else resolve(self.prepare)(problem, config, seed)

    def build(self, problem: "Problem", config: Any = None) -> "nn.Module":
        """Returns a new network, with the default sizes where no others are given."""
        network = resolve(self.network)
        if not fields(self.config):
            return network(problem)
        return network(problem, self.config() if config is None else config)


MODELS: Registry[ModelEntry] = Registry(
    "model",
    {
        "gpo": ModelEntry(
            "gpo.model.operator:GaussianParticleOperator", "gpo.model.config:OperatorConfig", 6e-3,
            "gpo.model.presets:prepare", optimizer="muon", is_operator=True,
        ),
        "gpo-paper": ModelEntry(
            "gpo.model.operator:GaussianParticleOperator", "gpo.model.config:PaperConfig", 1e-3,
            "gpo.model.presets:prepare", is_operator=True,
        ),
        "gaussian-field": ModelEntry(
            "gpo.model.presets:gaussian_field", "gpo.model.config:PaperConfig", 1e-3,
            "gpo.model.presets:prepare", is_listed=False,
        ),
    },
)  # fmt: skip
"""Every model by name; the package `gpo_bench` registers the baselines."""


def listed_models() -> list[str]:
    """Returns the names that `--model` offers."""
    return [name for name in MODELS if MODELS[name].is_listed]


def register_model(
    name: str,
    network: "Callable[..., nn.Module] | str",
    config: type[Any] | str = NoConfig,
    *,
    learning_rate: float = 1e-3,
    optimizer: OptimizerName = "adamw",
) -> None:
    """Makes a model known to every command, under a name that is not taken.

    Args:
        name: What `--model` takes.
        network: A class whose objects are built as `network(problem, config)` and called as
            `model(values, coords, weights=...)`, or `"module:attribute"`.
        config: A frozen data class with defaults and a docstring per field, which become flags;
            left out, the network is built as `network(problem)`.
        learning_rate: Peak learning rate where a run sets none.
        optimizer: The optimizer where a run sets none; muon is Muon for matrices, except those that
            a module names in its attribute `adamw_parameters`, and AdamW for the rest.
    """
    MODELS.register(name, ModelEntry(network, config, learning_rate, optimizer=optimizer))
