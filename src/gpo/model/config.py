"""Architecture of the Gaussian Particle Operator, as data."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from gpo.numerics.domain import Domain

PAPER_ONLY = ("mixing", "learns_mixing", "renormalises", "signed_readout", "share_layers")
"""Settings that the geometric variant knows nothing of."""


@dataclass(frozen=True, kw_only=True)
class OperatorConfig:
    """Architecture of a `GaussianParticleOperator` and of its `GaussianField`.

    Lengths (`sigma_min`, `sigma_max`, `fourier_std`) are in units of the domain: one is
    the side of the box, or the radius of the sphere.
    """

    in_channels: int
    """Values per site in the input field."""
    out_channels: int
    """Values per site in the output field."""
    dim: int
    """Coordinates per site: 1, 2 or 3 (3 on the sphere, whose points are unit vectors)."""
    variant: Literal["geometric", "paper"] = "geometric"
    """geometric: windows are waves, which know where sites are; paper: the method as published."""
    hidden_dim: int = 32
    """Width of the encoder, of the state, and of all heads of a layer together."""
    num_layers: int = 4
    """Layers; 0 leaves encoder, basis and decoder."""
    num_gaussians: int = 4
    """Gaussians per site; in the paper's variant also modes per head."""
    num_waves: int | tuple[int, ...] | None = None
    """geometric: largest wave number, of all axes or of each; 32 in 1-D, 8 in 2-D, 4 in 3-D when not given."""
    gate: Literal["bounded", "product", "none"] = "bounded"
    """geometric: what becomes of two filtered fields: tanh(p) r, p r, or a GELU of one field alone."""
    packet_widths: tuple[float, ...] = (0.4, 0.6, 1.0, 1.6)
    """geometric: widths of wave packets in wave numbers, one channel after the other; none leaves modes on their own."""
    mesh_shape: tuple[int, ...] = ()
    """geometric: nodes along the axes of a mesh that is fitted to a body; waves follow the mesh."""
    num_heads: int = 4
    """paper: heads per stage; must divide `hidden_dim`."""
    domain: Domain | None = None
    """Where the field lives; the open unit box when not given."""
    has_gaussian_field: bool = True
    """False replaces particles by a plain MLP encoder: the paper's ablation."""
    features: Literal["fourier", "mlp", "none"] = "fourier"
    """How a site's position enters the encoder: fixed Fourier features, a small MLP, or not."""
    num_frequencies: int = 16
    """Fourier features: number of random frequencies m (2 m features)."""
    fourier_std: float = 1.0
    """Fourier features: standard deviation of the frequencies, in turns per unit of length."""
    fourier_seed: int = 0
    """Fourier features: seed of the frequencies."""
    centers: Literal["absolute", "displacement"] = "absolute"
    """Whether the encoder predicts where a center is, or how many scales from its site, two at most."""
    sigma_min: float = 0.01
    """Scales below this are penalised by the scale loss."""
    sigma_max: float = 1.0
    """Scales above this are penalised by the scale loss."""
    mixing: float = 0.5
    """The coefficient lambda of the convex residual, in [0, 1]; its start where learned."""
    learns_mixing: bool = False
    """Whether lambda is a parameter of every stage."""
    renormalises: bool = True
    """Whether a stage keeps every site's mass, the sum of its basis over Gaussians."""
    signed_readout: bool = False
    """True is the paper's linear readout; False keeps the basis positive with a softplus."""
    share_layers: bool = False
    """Whether all stages are one and the same operator, applied repeatedly."""
    query_neighbours: int = 8
    """Sites whose particles a free query sees, blended; 1 is the paper's nearest site."""

    def __post_init__(self) -> None:
        """Refuses what no model can be built from, and fills in the domain."""
        for name in ("in_channels", "out_channels", "hidden_dim", "num_heads", "num_gaussians",
                     "num_frequencies", "query_neighbours"):  # fmt: skip
            value = getattr(self, name)
            _require(
                isinstance(value, int) and value >= 1, name, "a whole number, at least 1", value
            )
        _require(self.dim in (1, 2, 3), "dim", "1, 2 or 3", self.dim)
        _require(self.num_layers >= 0, "num_layers", "at least 0", self.num_layers)
        for name in ("variant", "gate", "features", "centers"):
            choices, value = get_args(type(self).__annotations__[name]), getattr(self, name)
            _require(value in choices, name, f"one of {', '.join(choices)}", repr(value))
        _require(
            math.isfinite(self.fourier_std) and self.fourier_std > 0,
            "fourier_std", "finite and positive", self.fourier_std,
        )  # fmt: skip
        _require(
            len(self.mesh_shape) in (0, 2, 3) and all(count >= 2 for count in self.mesh_shape),
            "mesh_shape", "two or three counts, each at least 2", self.mesh_shape,
        )  # fmt: skip
        object.__setattr__(self, "mesh_shape", tuple(self.mesh_shape))
        _require(
            all(math.isfinite(width) and width > 0 for width in self.packet_widths),
            "packet_widths", "finite and positive, each of them", self.packet_widths,
        )  # fmt: skip
        object.__setattr__(self, "packet_widths", tuple(self.packet_widths))
        _require(0 <= self.mixing <= 1, "mixing", "in [0, 1]", self.mixing)
        _require(
            not self.learns_mixing or 0 < self.mixing < 1,
            "mixing", "strictly between 0 and 1 where it is learned", self.mixing,
        )  # fmt: skip
        _require(self.sigma_min > 0, "sigma_min", "positive", self.sigma_min)
        _require(
            self.sigma_max > self.sigma_min,
            "sigma_max", f"above sigma_min={self.sigma_min}", self.sigma_max,
        )  # fmt: skip
        if self.variant == "geometric":
            for name in PAPER_ONLY:
                usual, value = getattr(type(self), name), getattr(self, name)
                _require(value == usual, name, f"{usual} in the geometric variant", value)
        if self.variant == "paper" and self.hidden_dim % self.num_heads:
            nearest = self.num_heads * max(1, round(self.hidden_dim / self.num_heads))
            raise ValueError(
                f"`hidden_dim` must be a multiple of `num_heads`, got hidden_dim={self.hidden_dim}, "
                f"num_heads={self.num_heads}. Nearest valid hidden_dim: {nearest}."
            )
        if self.domain is None:
            object.__setattr__(self, "domain", Domain.unit_box(self.dim))
        elif self.domain.dim != self.dim:
            raise ValueError(
                f"`domain` must have dim={self.dim} coordinates, got {self.domain.dim}"
                f"{' (a point of the sphere is a unit vector: dim=3)' * self.domain.is_sphere}."
            )
        _require(
            len(self.waves) == self.num_axes and all(count >= 1 for count in self.waves),
            "num_waves", f"at least 1, for all {self.num_axes} axes or for each", self.num_waves,
        )  # fmt: skip
        if self.features == "none" and self.centers == "absolute" and self.has_gaussian_field:
            raise ValueError(
                "`features` must be 'fourier' or 'mlp' where centers are absolute, got 'none': "
                "the encoder could not know where a site is. Set centers='displacement'."
            )

    @property
    def head_dim(self) -> int:
        """Channels of one token."""
        return self.hidden_dim // self.num_heads

    @property
    def num_axes(self) -> int:
        """Axes that waves run along: of a mesh, of a sphere two, of a box all."""
        return len(self.mesh_shape) or self.dim - self.space.is_sphere

    @property
    def waves(self) -> tuple[int, ...]:
        """Largest wave number of the geometric variant along every axis."""
        if isinstance(self.num_waves, tuple):
            return self.num_waves
        count = {1: 32, 2: 8, 3: 4}[self.num_axes] if self.num_waves is None else self.num_waves
        return (count,) * self.num_axes

    @property
    def state_channels(self) -> int:
        """Numbers per point that are decoded: the basis, or the state of the geometric variant."""
        return self.num_gaussians if self.variant == "paper" else self.hidden_dim

    @property
    def num_modes(self) -> int:
        """Modes per head: as many as there are Gaussians per site."""
        return self.num_gaussians

    @property
    def space(self) -> Domain:
        """The domain, which is always known once a configuration is built."""
        assert self.domain is not None
        return self.domain


def _require(holds: bool, name: str, expected: str, received: object) -> None:
    if not holds:
        raise ValueError(f"`{name}` must be {expected}, got {name}={received}.")
