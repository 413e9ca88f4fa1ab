"""Models by name: what `--model` takes beside gpo and gpo-paper.

A baseline is one file, with the network and its configuration, and one registration. A model from
outside of this package joins with `register_baseline`. Nothing here imports torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from gpo.registry import Registry, resolve
from gpo.settings_files import CheckpointError, check_fields

if TYPE_CHECKING:
    from torch import nn

    from gpo.model.problem import Problem


@dataclass(frozen=True, kw_only=True)
class NoSettings:
    """The configuration of a baseline that has nothing to set."""


@dataclass(frozen=True)
class Baseline:
    """A network and the configuration that sets its sizes."""

    network: Callable[..., "nn.Module"] | str
    """Called with a `Problem` and, where there is anything to set, a configuration; or
    `"module:attribute"`, from where it is imported when it is used."""
    config_class: type[Any] | str = NoSettings
    """A frozen data class whose every field has a default; likewise."""

    @property
    def config(self) -> type[Any]:
        """The configuration class."""
        return resolve(self.config_class)

    def build(self, problem: "Problem", config: Any = None) -> "nn.Module":
        """Returns a new network, with the default sizes where no others are given."""
        network = resolve(self.network)
        if not fields(self.config):
            return network(problem)
        return network(problem, self.config() if config is None else config)


BASELINES: Registry[Baseline] = Registry("model")
"""Every baseline by the name that commands and tables use; the package `gpo_bench` registers its own."""


def register_baseline(
    name: str, network: Callable[..., "nn.Module"], config: type[Any] = NoSettings
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
    BASELINES.register(name, Baseline(network, config))


def baseline_config(name: str, settings: Mapping[str, object]) -> Any:
    """Returns the configuration of a baseline with some fields changed.

    Args:
        name: A name of `BASELINES`.
        settings: Values by field; one that is unknown or of another type is refused.
    """
    config = find_baseline(name).config
    where = f"settings of {name}"
    return config(**check_fields(config, settings, where, error=CheckpointError))


def find_baseline(name: str) -> Baseline:
    """Returns a baseline; refuses unknown names with all known ones."""
    if name not in BASELINES:
        raise ValueError(f"`model` must be one of gpo, {', '.join(BASELINES)}, got {name!r}.")
    return BASELINES[name]
