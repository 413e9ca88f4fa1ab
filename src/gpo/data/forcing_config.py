"""Configuration of additional model inputs. Importing it imports nothing heavy."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import arg

NAMES = arg(metavar="NAME [...]", help_behavior_hint="")


@dataclass(frozen=True, kw_only=True)
class ForcingConfig:
    """Additional inputs: known in advance, not predicted."""

    static: Annotated[tuple[str, ...], NAMES] = ()
    """Static input fields, such as the orography."""
    static_from: Annotated[str | None, arg(metavar="PATH", help_behavior_hint="")] = None
    """File with the static fields at the sites of the data."""
    forcing: Annotated[tuple[str, ...], NAMES] = ()
    """Input variables prescribed at every time: fields, or scalar series."""
    parameters: Annotated[tuple[str, ...], NAMES] = ()
    """Scalar parameters of each trajectory or sample, such as a viscosity."""
    time_features: Annotated[
        tuple[Literal["day", "year", "solar"], ...],
        arg(metavar="X [...]", help_behavior_hint=""),
    ] = ()
    """Features of time: day, year, or solar (the zenith angle)."""

    def __post_init__(self) -> None:
        """Raises a `ValueError` for repeated names, and for `static_from` without `static`."""
        for index, name in enumerate(self.names):
            if name in self.names[:index]:
                raise ValueError(f"Each input must be named once, got {name} twice.")
        if self.static_from is not None and not self.static:
            raise ValueError("--static-from needs --static with the names of the fields to read.")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all additional inputs."""
        return (*self.static, *self.forcing, *self.parameters, *self.time_features)
