"""The data that a model is built for: channels, domain and kind of sites."""

from dataclasses import dataclass

from gpo.numerics.domain import Domain


@dataclass(frozen=True)
class Problem:
    """The data that a model is built for."""

    in_channels: int
    """Channels of the input field, coordinates not counted."""
    out_channels: int
    """Channels of the predicted field."""
    domain: Domain
    """Where the sites lie."""
    grid_shape: tuple[int, ...] = ()
    """Sites along every axis of a structured grid, last axis fastest; empty for scattered points."""
    is_fitted: bool = False
    """Whether that grid is a mesh that follows a body, with coordinates of its own in every sample."""


class UnsupportedGeometryError(ValueError):
    """A model cannot take sites of this kind; the message is the reason, fit for a table."""
