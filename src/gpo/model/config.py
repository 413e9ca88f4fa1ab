"""Architectures as data: one configuration for every kind of model."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

from gpo.limits import check_depth, check_width
from gpo.numerics.domain import Domain

NUM_WAVES = {1: 32, 2: 8, 3: 4}
"""Largest wave number along an axis where none is given, by the number of axes."""


def _check_counts(config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        _require(isinstance(value, int) and value >= 1, name, "a whole number, at least 1", value)


def _check_choices(config: object, *names: str) -> None:
    for name in names:
        choices, value = get_args(type(config).__annotations__[name]), getattr(config, name)
        _require(value in choices, name, f"one of {', '.join(choices)}", repr(value))


def _require(holds: bool, name: str, expected: str, received: object) -> None:
    if not holds:
        raise ValueError(f"`{name}` must be {expected}, got {name}={received}.")


def _check_frequencies(config: "EncoderConfig | GeometricConfig") -> None:
    std = config.fourier_std
    _require(math.isfinite(std) and std > 0, "fourier_std", "finite and positive", std)


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """How values at sites become Gaussian particles.

    Lengths (`sigma_min`, `sigma_max`, `fourier_std`) are in units of the domain: one is
    the side of the box, or the radius of the sphere.
    """

    num_gaussians: int = 16
    """Gaussians per site; in the paper's variant also modes per head."""
    centers: Literal["absolute", "displacement"] = "absolute"
    """Whether the encoder predicts where a center is, or how many scales from its site, two at most."""
    features: Literal["fourier", "mlp", "none"] = "fourier"
    """How a site's position enters the encoder: fixed Fourier features, a small MLP, or not."""
    num_frequencies: int = 16
    """Number m of random frequencies (2 m Fourier features)."""
    fourier_std: float = 1.0
    """Standard deviation of the frequencies, in turns per unit of length."""
    fourier_seed: int = 0
    """Seed of the frequencies."""
    sigma_min: float = 0.01
    """Scales below this are penalised by the scale loss."""
    sigma_max: float = 1.0
    """Scales above this are penalised by the scale loss."""
    has_gaussian_field: bool = True
    """False replaces particles by a plain MLP: the paper's ablation."""

    def __post_init__(self) -> None:
        """Refuses what no encoder can be built from."""
        _check_counts(self, "num_gaussians", "num_frequencies")
        _check_choices(self, "centers", "features")
        _check_frequencies(self)
        _require(self.sigma_min > 0, "sigma_min", "positive", self.sigma_min)
        _require(
            self.sigma_max > self.sigma_min,
            "sigma_max", f"above sigma_min={self.sigma_min}", self.sigma_max,
        )  # fmt: skip
        if self.features == "none" and self.centers == "absolute" and self.has_gaussian_field:
            raise ValueError(
                "`features` must be 'fourier' or 'mlp' where centers are absolute, got 'none': "
                "the encoder could not know where a site is. Set centers='displacement'."
            )


@dataclass(frozen=True, kw_only=True)
class GeometricConfig:
    """The default operator: layers of waves, which know where sites are, and particles that move."""

    in_channels: int
    """Values per site in the input field."""
    out_channels: int
    """Values per site in the output field."""
    domain: Domain
    """Where the field lives."""
    hidden_dim: int = 32
    """Channels of the state; width of lift and decoder."""
    num_layers: int = 4
    """Layers; 0 leaves lift and decoder."""
    num_gaussians: int = 4
    """Particles per site in a layer that transports."""
    num_transports: int = 1
    """How many layers, of the last ones, look through particles; 0 is the ablation without."""
    reach: float = 0.25
    """How far from its site a particle may look, in lengths of the axes; on a sphere of its box."""
    num_nodes: int | None = None
    """Nodes of the lattice that content is laid on where sites are scattered; as many as the waves
    resolve when not given."""
    num_waves: int | tuple[int, ...] | None = None
    """Largest wave number, of all axes or of each; 32 in 1-D, 8 in 2-D, 4 in 3-D when not given."""
    gate: Literal["bounded", "product", "none"] = "bounded"
    """What becomes of two filtered fields: tanh(p) r, p r, or a GELU of one field alone."""
    packet_widths: tuple[float, ...] = (0.4, 0.6, 1.0, 1.6)
    """Widths of wave packets in wave numbers, one channel after the other; none leaves modes on their own."""
    mesh_shape: tuple[int, ...] = ()
    """Nodes along the axes of a mesh that is fitted to a body; waves follow the mesh."""
    features: Literal["fourier", "mlp", "none"] = "fourier"
    """How a site's position enters its state: fixed Fourier features, a small MLP, or not."""
    num_frequencies: int = 16
    """Number m of random frequencies (2 m Fourier features)."""
    fourier_std: float = 1.0
    """Standard deviation of the frequencies, in turns per unit of length."""
    fourier_seed: int = 0
    """Seed of the frequencies."""
    query_neighbours: int = 8
    """Sites whose values a free query blends."""

    def __post_init__(self) -> None:
        """Refuses what no operator can be built from."""
        counts = ("in_channels", "out_channels", "hidden_dim", "num_gaussians")
        _check_counts(self, *counts, "query_neighbours", "num_frequencies")
        _require(self.num_layers >= 0, "num_layers", "at least 0", self.num_layers)
        check_depth("num_layers", self.num_layers)
        check_width("hidden_dim", self.hidden_dim, self.num_layers)
        _require(self.num_transports >= 0, "num_transports", "at least 0", self.num_transports)
        nodes = self.num_nodes
        _require(nodes is None or nodes >= 1, "num_nodes", "at least 1", nodes)
        _require(0 < self.reach <= 0.5, "reach", "above 0 and at most 0.5", self.reach)
        _check_choices(self, "gate", "features")
        _check_frequencies(self)
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
        _require(
            len(self.wave_limits) == self.num_axes and all(n >= 1 for n in self.wave_limits),
            "num_waves", f"at least 1, for all {self.num_axes} axes or for each", self.num_waves,
        )  # fmt: skip

    @property
    def state_channels(self) -> int:
        """Numbers per point that the decoder reads: the state."""
        return self.hidden_dim

    @property
    def has_particles(self) -> bool:
        """Whether any layer looks through particles."""
        return self.num_layers > 0 and self.num_transports > 0

    @cached_property
    def num_axes(self) -> int:
        """Axes that waves run along: of a mesh, of a sphere two, of a box all."""
        return len(self.mesh_shape) or self.domain.dim - self.domain.is_sphere

    @property
    def lattice_nodes(self) -> int:
        """Nodes of the lattice of scattered sites: six to the shortest wave when not given."""
        if self.num_nodes is not None:
            return self.num_nodes
        return math.prod(6 * limit for limit in self.wave_limits)

    @cached_property
    def wave_limits(self) -> tuple[int, ...]:
        """Largest wave number along every axis."""
        if isinstance(self.num_waves, tuple):
            return self.num_waves
        limit = NUM_WAVES[self.num_axes] if self.num_waves is None else self.num_waves
        return (limit,) * self.num_axes


@dataclass(frozen=True, kw_only=True)
class PaperConfig:
    """The operator as published: attention through windows that see what a site holds."""

    in_channels: int
    """Values per site in the input field."""
    out_channels: int
    """Values per site in the output field."""
    domain: Domain
    """Where the field lives."""
    hidden_dim: int = 64
    """Width of encoder and decoder, and of all heads of a layer together."""
    num_layers: int = 4
    """Layers; 0 leaves encoder, basis and decoder."""
    num_heads: int = 4
    """Heads per layer; must divide `hidden_dim`."""
    mixing: float = 0.5
    """The coefficient lambda of the convex residual, in [0, 1]; its start where learned."""
    learns_mixing: bool = False
    """Whether lambda is a parameter of every layer."""
    renormalises: bool = True
    """Whether a layer keeps every site's mass, the sum of its basis over Gaussians."""
    signed_readout: bool = False
    """True is the paper's linear readout; False keeps the basis positive with a softplus."""
    share_layers: bool = False
    """Whether all layers are one and the same operator, applied repeatedly."""
    encoder: EncoderConfig = EncoderConfig()
    """How values become particles."""
    query_neighbours: int = 8
    """Sites whose particles a free query sees, blended; 1 is the paper's nearest site."""

    def __post_init__(self) -> None:
        """Refuses what no operator can be built from."""
        counts = ("in_channels", "out_channels", "hidden_dim", "num_heads", "query_neighbours")
        _check_counts(self, *counts)
        _require(self.num_layers >= 0, "num_layers", "at least 0", self.num_layers)
        check_depth("num_layers", self.num_layers)
        check_width("hidden_dim", self.hidden_dim, self.num_layers)
        _require(0 <= self.mixing <= 1, "mixing", "in [0, 1]", self.mixing)
        _require(
            not self.learns_mixing or 0 < self.mixing < 1,
            "mixing", "strictly between 0 and 1 where it is learned", self.mixing,
        )  # fmt: skip
        if self.hidden_dim % self.num_heads:
            nearest = self.num_heads * max(1, round(self.hidden_dim / self.num_heads))
            raise ValueError(
                f"`hidden_dim` must be a multiple of `num_heads`, got hidden_dim={self.hidden_dim}, "
                f"num_heads={self.num_heads}. Nearest valid hidden_dim: {nearest}."
            )

    @property
    def state_channels(self) -> int:
        """Numbers per point that the decoder reads: the basis."""
        return self.num_gaussians

    @property
    def has_particles(self) -> bool:
        """Whether the encoder makes particles."""
        return self.encoder.has_gaussian_field

    @property
    def head_dim(self) -> int:
        """Channels of one token."""
        return self.hidden_dim // self.num_heads

    @property
    def num_gaussians(self) -> int:
        """Gaussians per site, and modes per head."""
        return self.encoder.num_gaussians


@dataclass(frozen=True, kw_only=True)
class FieldConfig:
    """The Gaussian field: an auto-encoder that writes a field as particles and reads it back."""

    in_channels: int
    """Values per site in the input field."""
    out_channels: int
    """Values per site in the reconstructed field."""
    domain: Domain
    """Where the field lives."""
    hidden_dim: int = 64
    """Width of encoder and decoder."""
    encoder: EncoderConfig = EncoderConfig()
    """How values become particles."""
    query_neighbours: int = 8
    """Sites whose particles a free query sees, blended; 1 is the paper's nearest site."""

    def __post_init__(self) -> None:
        """Refuses what no field can be built from."""
        _check_counts(self, "in_channels", "out_channels", "hidden_dim", "query_neighbours")
        check_width("hidden_dim", self.hidden_dim)

    @property
    def has_particles(self) -> bool:
        """Whether the encoder makes particles."""
        return self.encoder.has_gaussian_field


OperatorConfig = GeometricConfig | PaperConfig
"""What a `GaussianParticleOperator` is built from; the type decides the variant."""

ModelConfig = OperatorConfig | FieldConfig
