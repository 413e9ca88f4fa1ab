"""What a run sets of its model: the flags that depend on `--model`.

These data classes import nothing heavy, so that help answers at once. Their defaults are those of
the configurations in `gpo.model.config`; a test compares them.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, arg

from gpo.limits import check_depth, check_width

NAME = arg(metavar="NAME")
"""Choices stand in the help of a flag, not beside it: flags stay short."""

PaperAblation = Literal[
    "without-pg-operator",
    "without-gaussian-field",
    "gaussians-1",
    "gaussians-16",
    "gaussians-32",
    "gaussians-64",
]
"""Rows of the paper's ablation table."""


@dataclass(frozen=True, kw_only=True)
class OperatorSettings:
    """What both variants of gpo have in common."""

    hidden_dim: int = 32
    """Width of the state, and of all heads together."""
    num_layers: int = 4
    """Layers; 0 leaves what is before and after them."""
    num_gaussians: int = 4
    """Particles per site."""
    features: Annotated[Literal["fourier", "mlp", "none"], NAME] = "fourier"
    """Of positions: fourier, mlp or none."""
    num_frequencies: Annotated[int, arg(metavar="N")] = 16
    """Number of random frequencies of Fourier features."""
    fourier_std: float = 1.0
    """Their standard deviation, in turns per side."""
    query_neighbours: Annotated[int, arg(metavar="N")] = 8
    """Sites that a free query blends."""

    def __post_init__(self) -> None:
        """Refuses sizes of which no model can be made."""
        least = {"hidden_dim": 1, "num_layers": 0, "num_gaussians": 1, "query_neighbours": 1}
        for name, count in least.items():
            if getattr(self, name) < count:
                raise ValueError(f"`{name}` must be at least {count}, got {getattr(self, name)}.")
        check_depth("num_layers", self.num_layers)
        check_width("hidden_dim", self.hidden_dim, self.num_layers)


@dataclass(frozen=True, kw_only=True)
class GeometricSettings(OperatorSettings):
    """Settings of gpo, whose windows are waves and whose particles move."""

    num_transports: int = 1
    """Layers, of the last ones, whose particles move; 0 is the ablation without."""
    reach: float = 0.25
    """How far a particle may look, in lengths of the axes."""
    num_waves: Annotated[
        int | tuple[int, ...] | None,
        arg(metavar="N [N ...]", help_behavior_hint="(default: all that the grid resolves)"),
    ] = None
    """Largest wave number, of all axes or of each."""
    gate: Annotated[Literal["bounded", "product", "none"], NAME] = "bounded"
    """bounded: tanh(p) r; product: p r; none: a GELU of one."""
    packet_widths: Annotated[tuple[float, ...], arg(metavar="[X ...]")] = (0.4, 0.6, 1.0, 1.6)
    """Widths of wave packets, in wave numbers, one channel after the other; without a number
    modes stay on their own."""


@dataclass(frozen=True, kw_only=True)
class PaperSettings(OperatorSettings):
    """Settings of gpo-paper, the method as published."""

    hidden_dim: int = 64
    """Width of the encoder, the state and all heads together."""
    num_gaussians: int = 16
    """Gaussians per site and modes per head."""
    centers: Annotated[Literal["absolute", "displacement"], NAME] = "displacement"
    """absolute, or displacement from the site."""
    sigma_min: float = 0.01
    """Smaller scales are penalised, in sides of the domain."""
    sigma_max: float = 1.0
    """Larger scales are penalised, likewise."""
    has_gaussian_field: FlagCreatePairsOff[
        Annotated[bool, arg(help_behavior_hint="(default: particles)")]
    ] = True
    """Whether particles encode a site, or an MLP."""
    num_heads: int = 4
    """Heads per layer; must divide hidden-dim."""
    mixing: float = 0.5
    """Lambda of the convex residual; its start where learned."""
    learns_mixing: FlagCreatePairsOff[bool] = False
    """Lambda is a parameter of every layer."""
    renormalises: FlagCreatePairsOff[
        Annotated[bool, arg(help_behavior_hint="(default: it does)")]
    ] = True
    """Whether a layer keeps a site's mass."""
    signed_readout: FlagCreatePairsOff[bool] = False
    """The paper's linear readout, in place of a softplus."""
    share_layers: FlagCreatePairsOff[bool] = False
    """All layers are one and the same operator."""
    ablation: Annotated[PaperAblation | None, arg(metavar="ROW", help_behavior_hint="")] = None
    """Row of the paper's ablation at equal size: without-pg-operator."""
    loss_center: float = 0.1
    """Weight of L_mu: the mean center of a site is the site."""
    loss_scale: float = 0.1
    """Weight of L_sigma: scales stay within their bounds."""
    loss_input: float = 0.0
    """Weight of the error of the input, encoded and decoded."""
    loss_target: float = 0.0
    """Weight of the error of the target, encoded and decoded."""
    loss_basis: float = 0.0
    """Weight of the distance to the encoded target's basis."""

    def __post_init__(self) -> None:
        """Refuses weights of losses that would reward errors."""
        super().__post_init__()
        for name, value in vars(self).items():
            if name.startswith("loss_") and not 0 <= value < math.inf:
                raise ValueError(f"`{name}` must be zero or more, got {value}.")


OURS: dict[str, OperatorSettings] = {"gpo": GeometricSettings(), "gpo-paper": PaperSettings()}
"""The variants of our operator and the settings that a run starts from."""


def default_settings(model: str) -> Any:
    """Returns the settings that a model starts from; refuses unknown names with all known ones."""
    if model in OURS:
        return OURS[model]
    # All baselines are networks, which import torch.
    from gpo.model.registry import BASELINES

    if model not in BASELINES:
        names = ", ".join((*OURS, *BASELINES))
        raise ValueError(f"`model` must be one of {names}, got {model!r}.")
    return BASELINES[model].config()
