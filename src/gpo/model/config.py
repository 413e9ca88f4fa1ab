"""Architectures as data: one configuration per model, which is flags, YAML and saved file at once.

Nothing here imports torch, so that help answers at once. What a model is built for, its channels,
domain and grid, is a `Problem`.
"""

import math
from dataclasses import dataclass
from typing import (
    Annotated,
    ClassVar,
    Literal,
    Protocol,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

from tyro.conf import FlagCreatePairsOff, Suppress, arg

from gpo.limits import check_depth, check_width

NAME = arg(metavar="NAME")
"""Choices are named in the help of a flag, not beside it: lines of help stay short."""

Features = Annotated[Literal["fourier", "mlp", "none"], NAME]

PaperAblation = Literal[
    "without-pg-operator",
    "without-gaussian-field",
    "gaussians-1",
    "gaussians-16",
    "gaussians-32",
    "gaussians-64",
]
"""Rows of the paper's ablation table."""


@runtime_checkable
class AbstractConfig(Protocol):
    """What an operator needs of its configuration: a frozen data class, ours or another package's."""

    MODEL: ClassVar[str]
    """The name under which the model is registered."""
    PARTS: ClassVar[str]
    """`"module:function"`, called with problem and configuration, which returns a `Parts`."""

    @property
    def query_neighbours(self) -> int:
        """Number of sites that are interpolated at a query."""
        ...


@dataclass(frozen=True, kw_only=True)
class OperatorConfig:
    """The default operator: layers of waves, and particles that sample upstream."""

    MODEL: ClassVar[str] = "gpo"
    """The name under which the model is registered."""
    PARTS: ClassVar[str] = "gpo.model.transport:build_parts"
    """Builds lift, layers and decoder."""

    hidden_dim: int = 32
    """Channels of the state."""
    num_layers: int = 4
    """Number of layers (0: lift and decoder only)."""
    num_gaussians: int = 4
    """Number of particles per point in a layer with transport."""
    num_transports: int = 1
    """Number of layers with transport, counted from the last (0: ablation without particles)."""
    reach: float = 0.25
    """Largest displacement of a particle, in lengths of the axes; on a sphere, of its box."""
    num_nodes: Annotated[
        int | None, arg(metavar="N", help_behavior_hint="(default: two per point)")
    ] = None
    """Number of lattice nodes for unstructured points."""
    num_waves: Annotated[
        int | tuple[int, ...] | None,
        arg(metavar="N [N ...]", help_behavior_hint="(default: three quarters of the grid's)"),
    ] = None
    """Largest wave number, for all axes or for each."""
    gate: Annotated[Literal["bounded", "product", "none"], NAME] = "bounded"
    """Nonlinearity of a layer: bounded tanh(p) r, product p r, or none for a GELU."""
    packet_widths: Annotated[tuple[float, ...], arg(metavar="[X ...]")] = (0.4, 0.6, 1.0, 1.6)
    """Widths of the filters' wave packets in wave numbers, repeated over the channels; empty
    gives every mode a weight of its own."""
    features: Features = "fourier"
    """Position features: fourier, mlp or none."""
    num_frequencies: Annotated[int, arg(metavar="N")] = 16
    """Number of random frequencies of the Fourier features."""
    fourier_std: float = 1.0
    """Standard deviation of these frequencies, in turns per side of the domain."""
    fourier_seed: Suppress[int | None] = None
    """Seed of these frequencies; that of the run when not given."""
    query_neighbours: Annotated[int, arg(metavar="N")] = 8
    """Number of sites that are interpolated at a free query point."""

    def __post_init__(self) -> None:
        """Refuses sizes that no operator can be built with."""
        _check_operator(self)
        _require(self.num_transports >= 0, "num_transports", "at least 0", self.num_transports)
        nodes = self.num_nodes
        _require(nodes is None or nodes >= 1, "num_nodes", "at least 1", nodes)
        _require(0 < self.reach <= 0.5, "reach", "above 0 and at most 0.5", self.reach)
        _require(
            all(math.isfinite(width) and width > 0 for width in self.packet_widths),
            "packet_widths", "finite and positive, each of them", self.packet_widths,
        )  # fmt: skip
        waves = self.num_waves if isinstance(self.num_waves, tuple) else (self.num_waves,)
        _require(
            all(limit is None or limit >= 1 for limit in waves),
            "num_waves", "at least 1, for all axes or for each", self.num_waves,
        )  # fmt: skip

    @property
    def has_transport(self) -> bool:
        """Whether any layer samples through particles."""
        return self.num_layers > 0 and self.num_transports > 0


@dataclass(frozen=True, kw_only=True)
class PaperConfig:
    """The operator as published: attention through windows that depend on the field.

    Lengths (`sigma_min`, `sigma_max`, `fourier_std`) are in units of the domain: one is the side of
    the box, or the radius of the sphere.
    """

    MODEL: ClassVar[str] = "gpo-paper"
    """The name under which the model is registered."""
    PARTS: ClassVar[str] = "gpo.model.attention:build_parts"
    """Builds lift, layers and decoder."""

    hidden_dim: int = 64
    """Width of the encoder, the decoder and all heads of a layer together."""
    num_layers: int = 4
    """Number of layers (0: encoder and decoder only)."""
    num_heads: int = 4
    """Number of heads per layer; must divide hidden-dim."""
    num_gaussians: int = 16
    """Number of Gaussians per site, and of modes per head."""
    centers: Annotated[Literal["absolute", "displacement"], NAME] = "absolute"
    """Whether centers are absolute, or a displacement from the site of at most two scales."""
    features: Features = "fourier"
    """Position features of the encoder: fourier, mlp or none."""
    num_frequencies: Annotated[int, arg(metavar="N")] = 16
    """Number of random frequencies of the Fourier features."""
    fourier_std: float = 1.0
    """Standard deviation of these frequencies, in turns per side of the domain."""
    fourier_seed: Suppress[int | None] = None
    """Seed of these frequencies; that of the run when not given."""
    sigma_min: float = 0.01
    """Smallest scale without a penalty, in sides of the domain."""
    sigma_max: float = 1.0
    """Largest scale without a penalty, in sides of the domain."""
    has_gaussian_field: FlagCreatePairsOff[
        Annotated[bool, arg(help_behavior_hint="(default: particles)")]
    ] = True
    """Whether the encoder makes particles, or an MLP makes features: the paper's ablation."""
    mixing: float = 0.5
    """Coefficient lambda of the convex residual; its initial value where it is learned."""
    learns_mixing: FlagCreatePairsOff[bool] = False
    """Makes lambda a parameter of every layer."""
    renormalises: FlagCreatePairsOff[
        Annotated[bool, arg(help_behavior_hint="(default: it does)")]
    ] = True
    """Whether a layer keeps every site's mass, the sum of its basis over Gaussians."""
    signed_readout: FlagCreatePairsOff[bool] = False
    """Uses the paper's linear readout in place of a softplus, which keeps the basis positive."""
    share_layers: FlagCreatePairsOff[bool] = False
    """Applies one layer repeatedly, in place of separate ones."""
    query_neighbours: Annotated[int, arg(metavar="N")] = 8
    """Number of sites whose particles are blended at a query point; 1 is the paper's nearest."""
    ablation: Annotated[PaperAblation | None, arg(metavar="ROW", help_behavior_hint="")] = None
    """Row of the paper's ablation table, at equal size, such as without-pg-operator."""
    loss_center: float = 0.1
    """Weight of L_mu: the mean center of a site's particles is the site."""
    loss_scale: float = 0.1
    """Weight of L_sigma: scales stay within their bounds."""
    loss_input: float = 0.0
    """Weight of the reconstruction error of the input."""
    loss_target: float = 0.0
    """Weight of the reconstruction error of the target."""
    loss_basis: float = 0.0
    """Weight of the distance of the last basis from that of the encoded target."""

    def __post_init__(self) -> None:
        """Refuses sizes that no operator can be built with."""
        _check_operator(self)
        _check_counts(self, "num_heads")
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
        for name, value in vars(self).items():
            if name.startswith("loss_") and not 0 <= value < math.inf:
                raise ValueError(f"`{name}` must be zero or more, got {value}.")

    @property
    def head_dim(self) -> int:
        """Channels of one token."""
        return self.hidden_dim // self.num_heads


AnyConfig = OperatorConfig | PaperConfig


def _check_operator(config: AnyConfig) -> None:
    """Checks what both operators have."""
    _check_counts(config, "hidden_dim", "num_gaussians", "query_neighbours", "num_frequencies")
    _require(config.num_layers >= 0, "num_layers", "at least 0", config.num_layers)
    check_depth("num_layers", config.num_layers)
    check_width("hidden_dim", config.hidden_dim, config.num_layers)
    std = config.fourier_std
    _require(math.isfinite(std) and std > 0, "fourier_std", "finite and positive", std)
    for name, kind in get_type_hints(type(config)).items():
        value, choices = getattr(config, name), get_args(kind)
        if get_origin(kind) is Literal:
            _require(value in choices, name, f"one of {', '.join(choices)}", repr(value))
        if get_origin(kind) is tuple:
            object.__setattr__(config, name, tuple(value))


def _check_counts(config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        _require(isinstance(value, int) and value >= 1, name, "a whole number, at least 1", value)


def _require(holds: bool, name: str, expected: str, received: object) -> None:
    if not holds:
        raise ValueError(f"`{name}` must be {expected}, got {name}={received}.")
