"""Which inputs a model gets beside the state. Importing this imports nothing heavy."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import arg

NAMES = arg(metavar="NAME [...]", help_behavior_hint="")


@dataclass(frozen=True, kw_only=True)
class ForcingConfig:
    """What is given beside the state: known in advance, never predicted."""

    static: Annotated[tuple[str, ...], NAMES] = ()
    """Fields that do not change in time, such as an orography."""
    static_from: Annotated[str | None, arg(metavar="PATH", help_behavior_hint="")] = None
    """Another file that holds these, at the sites of the data or more."""
    forcing: Annotated[tuple[str, ...], NAMES] = ()
    """What is prescribed at every time: fields, or one number each."""
    parameters: Annotated[tuple[str, ...], NAMES] = ()
    """Constants of every trajectory or sample, such as a viscosity."""
    time_features: Annotated[
        tuple[Literal["day", "year", "solar"], ...],
        arg(metavar="X [...]", help_behavior_hint=""),
    ] = ()
    """day, year: the time of each; solar: height of the sun."""

    def __post_init__(self) -> None:
        """Refuses a name twice, and a file without names of what to take from it."""
        names = (*self.static, *self.forcing, *self.parameters, *self.time_features)
        for index, name in enumerate(names):
            if name in names[:index]:
                raise ValueError(f"{name} is an input twice: name it once.")
        if self.static_from is not None and not self.static:
            raise ValueError("--static-from needs --static: the names of the fields to take.")

    @property
    def names(self) -> tuple[str, ...]:
        """All inputs, as they are asked for."""
        return (*self.static, *self.forcing, *self.parameters, *self.time_features)
