"""Configuration of forcings: inputs besides the state. Imports nothing heavy."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import arg

NAMES = arg(metavar="NAME [...]", help_behavior_hint="")


@dataclass(frozen=True, kw_only=True)
class ForcingConfig:
    """Forcings: inputs besides the state, known in advance and never predicted."""

    static: Annotated[tuple[str, ...], NAMES] = ()
    """Fields constant in time, such as orography."""
    static_from: Annotated[str | None, arg(metavar="PATH", help_behavior_hint="")] = None
    """File with these fields, if not in the data; may cover more points."""
    forcing: Annotated[tuple[str, ...], NAMES] = ()
    """Time-dependent forcings: fields or scalars, known in advance."""
    parameters: Annotated[tuple[str, ...], NAMES] = ()
    """Constants per trajectory or sample, such as viscosity."""
    time_features: Annotated[
        tuple[Literal["day", "year", "solar"], ...],
        arg(metavar="X [...]", help_behavior_hint=""),
    ] = ()
    """Inputs from dates: time of day, of year, or solar elevation."""

    def __post_init__(self) -> None:
        """Checks that names are unique and that `static_from` comes with names."""
        names = (*self.static, *self.forcing, *self.parameters, *self.time_features)
        for index, name in enumerate(names):
            if name in names[:index]:
                raise ValueError(f"Inputs must be unique, got {name} twice: name it once.")
        if self.static_from is not None and not self.static:
            raise ValueError("--static-from needs --static with the names of the fields to read.")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all forcings, in the order of the flags."""
        return (*self.static, *self.forcing, *self.parameters, *self.time_features)
