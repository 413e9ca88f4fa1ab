"""Architectures as data: one configuration per model, which is flags, YAML and saved file at once.

Nothing here imports torch, so that help answers at once. What a model is built for, its channels,
domain and grid, is a `Problem`.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args, get_origin, get_type_hints

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


MAX_WAVES = 10_000
"""Largest wave number; waves of a model folder are built before its weights are read."""
MAX_PACKET_WIDTH = 1000.0
"""Largest width of a filter in wave numbers; its inverse is the smallest, below which it has no values."""


@dataclass(frozen=True, kw_only=True)
class OperatorConfig:
    """The default operator: layers of waves, and particles that sample upstream."""

    MODEL: ClassVar[str] = "gpo"
    """The name under which the model is registered."""
    PARTS: ClassVar[str] = "gpo.model.transport:build_parts"
    """Builds lift, layers and decoder."""

    hidden_dim: int = 32
    """Number of channels of the state."""
    num_layers: int = 4
    """Number of layers (0: lift and decoder only)."""
    num_gaussians: int = 4
    """Number of particles per point in a layer with transport."""
    num_transports: int = 2
    """Number of final layers with transport (0: no particles)."""
    reach: float = 0.25
    """Maximum displacement as a fraction of each axis length."""
    num_nodes: Annotated[
        int | None, arg(metavar="N", help_behavior_hint="(default: 2 per point)")
    ] = None
    """Number of lattice nodes for unstructured points."""
    num_waves: Annotated[
        int | tuple[int, ...] | None,
        arg(metavar="N [N ...]", help_behavior_hint="(default: 3/4 of the grid's)"),
    ] = None
    """Maximum wave number, common or per axis."""
    gate: Annotated[Literal["bounded", "product", "none"], NAME] = "bounded"
    """Gate of a layer: bounded (tanh(p) r), product (p r) or none (GELU)."""
    packet_widths: Annotated[tuple[float, ...], arg(metavar="[X ...]")] = (0.4, 0.6, 1.0, 1.6)
    """Filter widths in wave numbers, cycled over channels (empty: one weight per mode)."""
    features: Features = "fourier"
    """Position features: fourier, mlp or none."""
    num_frequencies: Annotated[int, arg(metavar="N")] = 16
    """Number of random frequencies of the Fourier features."""
    fourier_std: float = 1.0
    """Standard deviation of frequencies, in cycles per domain."""
    fourier_seed: Suppress[int | None] = None
    """Seed of these frequencies; that of the run when not given."""
    query_neighbours: Annotated[int, arg(metavar="N")] = 8
    """Number of neighbours for interpolation at a query point."""

    def __post_init__(self) -> None:
        """Refuses sizes that no operator can be built with."""
        _check_operator(self)
        _require(self.num_transports >= 0, "num_transports", "at least 0", self.num_transports)
        nodes = self.num_nodes
        _require(nodes is None or nodes >= 1, "num_nodes", "at least 1", nodes)
        _require(0 < self.reach <= 0.5, "reach", "above 0 and at most 0.5", self.reach)
        _require(
            all(1 / MAX_PACKET_WIDTH <= width <= MAX_PACKET_WIDTH for width in self.packet_widths),
            "packet_widths", f"from {1 / MAX_PACKET_WIDTH:g} to {MAX_PACKET_WIDTH:g}, each of them",
            self.packet_widths,
        )  # fmt: skip
        waves = self.num_waves if isinstance(self.num_waves, tuple) else (self.num_waves,)
        _require(
            all(limit is None or 1 <= limit <= MAX_WAVES for limit in waves),
            "num_waves", f"from 1 to {MAX_WAVES}, for all axes or for each", self.num_waves,
        )  # fmt: skip

    @property
    def has_transport(self) -> bool:
        """Whether any layer samples through particles."""
        return self.num_layers > 0 and self.num_transports > 0


@dataclass(frozen=True, kw_only=True)
class PaperConfig:
    """The operator as published: attention through windows that depend on the field.

    The defaults are the paper wherever it states anything; `docs/paper.md` has the reasons for other
    choices. Those without a flag (`Suppress`) are set in Python, or in a file with `--config`.
    Lengths (`sigma_min`, `sigma_max`, `fourier_std`) are in units of the domain: one is the side of
    the box, or the radius of the sphere.
    """

    MODEL: ClassVar[str] = "gpo-paper"
    """The name under which the model is registered."""
    PARTS: ClassVar[str] = "gpo.model.attention:build_parts"
    """Builds lift, layers and decoder."""

    hidden_dim: int = 64
    """Width of encoder, decoder and all heads together."""
    num_layers: int = 4
    """Number of layers (0: encoder and decoder only)."""
    num_heads: int = 4
    """Number of heads per layer; must divide hidden-dim."""
    num_gaussians: int = 16
    """Number of Gaussians per point and of modes per head."""
    centers: Annotated[Literal["absolute", "displacement"], NAME] = "absolute"
    """Centers: absolute, or displacement from the point."""
    nearest_images: Suppress[bool] = False
    """Treat periodic axes as such in offsets and in the descriptor."""
    features: Features = "fourier"
    """Position features: fourier, mlp or none."""
    num_frequencies: Suppress[int] = 16
    """Number of random frequencies of the Fourier features."""
    fourier_std: Suppress[float] = 1.0
    """Standard deviation of frequencies, in cycles per domain."""
    fourier_seed: Suppress[int | None] = None
    """Seed of these frequencies; that of the run when not given."""
    integer_frequencies: Suppress[bool] = False
    """Round frequencies to whole turns on periodic axes."""
    input_coordinates: Suppress[bool] = False
    """Also give the coordinates themselves to the encoder."""
    sigma_min: Suppress[float] = 0.01
    """Smallest scale without penalty, in domain lengths."""
    sigma_max: Suppress[float] = 1.0
    """Largest scale without penalty, in domain lengths."""
    has_gaussian_field: Suppress[bool] = True
    """Whether the encoder returns particles, not the features of an MLP."""
    mixing: float = 0.5
    """(Initial) coefficient lambda of the convex residual."""
    learns_mixing: Suppress[bool] = False
    """Learn lambda, one per layer."""
    renormalises: FlagCreatePairsOff[
        Annotated[
            bool,
            arg(
                help="Do not conserve the sum of each point's basis.",
                help_behavior_hint="(default: False)",
            ),
        ]
    ] = True
    """Whether layers conserve the sum of each point's basis."""
    layer_norm: Suppress[bool] = False
    """Normalise each point's basis before windows and tokens."""
    readout: Annotated[Literal["linear", "softplus"], NAME] = "linear"
    """Readout of a layer: linear, or softplus (positive)."""
    temperature: Suppress[float] = 1.0
    """(Initial) temperature of the windows; lower is sharper."""
    learns_temperature: Suppress[bool] = False
    """Learn the temperature, one per layer."""
    places_windows: Suppress[bool] = False
    """Also give the position features of a point to its windows."""
    names_modes: Suppress[bool] = False
    """Add a learned vector to the token of each mode."""
    shares_windows: Suppress[bool] = False
    """Share W_p of the windows among the heads of a layer."""
    has_biases: Suppress[bool] = False
    """Add biases to W_z, W_p, W_Q, W_K, W_V and W_out."""
    token_width: Suppress[int] = 0
    """Hidden width of a feed-forward on tokens (0: none)."""
    share_layers: FlagCreatePairsOff[bool] = False
    """Share the weights of all layers."""
    query_neighbours: Annotated[int, arg(metavar="N")] = 8
    """Number of points interpolated at a query point."""
    ablation: Annotated[PaperAblation | None, arg(metavar="ROW", help_behavior_hint="")] = None
    """Row of the paper's ablation table, such as without-pg-operator."""
    loss_center: float = 0.1
    """Weight of L_mu: centers average to their point."""
    loss_scale: float = 0.1
    """Weight of L_sigma: scales stay within bounds."""
    loss_input: float = 0.0
    """Weight of the reconstruction error of the input."""
    loss_target: float = 0.0
    """Weight of the reconstruction error of the target."""
    loss_basis: float = 0.0
    """Weight of the distance to the basis of the target."""

    def __post_init__(self) -> None:
        """Refuses sizes that no operator can be built with."""
        _check_operator(self)
        _check_counts(self, "num_heads")
        _require(self.sigma_min > 0, "sigma_min", "positive", self.sigma_min)
        _require(
            self.sigma_max > self.sigma_min,
            "sigma_max", f"above sigma_min={self.sigma_min}", self.sigma_max,
        )  # fmt: skip
        is_placed = self.features != "none" or self.input_coordinates
        if not is_placed and self.centers == "absolute" and self.has_gaussian_field:
            raise ValueError(
                "`features` must be 'fourier' or 'mlp' where centers are absolute, got 'none': "
                "the encoder could not know where a site is. Set centers='displacement' or "
                "input_coordinates=True."
            )
        _require(
            math.isfinite(self.temperature) and self.temperature > 0,
            "temperature", "finite and positive", self.temperature,
        )  # fmt: skip
        _require(self.token_width >= 0, "token_width", "at least 0", self.token_width)
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
