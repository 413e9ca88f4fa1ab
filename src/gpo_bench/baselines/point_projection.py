r"""Fourier projection between unstructured 2-D points and a latent grid (Geo-FNO, Li et al., 2022).

A network learns the coordinates of points on the latent torus, $\xi=\phi^{-1}(x)$. The low modes
are $\hat u_k=\sum_n u_n e^{-2\pi i\langle k,\xi_n\rangle}$, and the field at points is
$u(x)=\mathrm{Re}\sum_k\hat u_k e^{2\pi i\langle k,\xi(x)\rangle}$. Modes are ordered as in
`spectral_convolution`.
"""

import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Bool, Complex, Float
from torch import Tensor, nn
from torch.nn.functional import gelu
from torch.utils.checkpoint import checkpoint

from gpo_bench.baselines.base import PointwiseLinear, index_coordinates
from gpo_bench.baselines.spectral_convolution import (
    ModeMixing,
    at_least_single,
    from_low_modes,
    low_modes,
    resolved_modes,
)

CENTER = 1e-4
"""Both coordinates of the origin of polar coordinates: near a corner, but not on a site."""

MAX_SITES = 20_000
"""Number of sites per chunk of plane waves; 46 MB in single precision with 12 modes."""


class DeformationNetwork(nn.Module):
    r"""The learned deformation $\xi=x+x\odot d(x)$.

    $d$ is a perceptron of position, angle and radius and of their sines and cosines.

    Args:
        width: Number of features of each kind; the perceptron is four times as wide.
        code_size: Length of the shape code of the published network, whose layer is built but never
            used here; 0 for no such layer.
    """

    octaves: Tensor

    def __init__(self, width: int = 32, code_size: int = 0) -> None:
        super().__init__()
        self.lift = nn.Linear(4, width)
        if code_size:
            self.code = nn.Linear(code_size, width)
        hidden = 4 * width
        self.layers = nn.Sequential(
            nn.Linear(3 * width, hidden),
            *(part for _ in range(3) for part in (nn.Linear(hidden, hidden), nn.Tanh())),
            nn.Linear(hidden, 2),
        )
        octaves = torch.arange(width // 4, dtype=torch.get_default_dtype())
        self.register_buffer("octaves", 2**octaves, persistent=False)

    def forward(self, coords: Float[Tensor, "batch points 2"]) -> Float[Tensor, "image points 2"]:
        """Returns the coordinates of each point on the latent torus of period one.

        If all samples have the same points, the result has batch size one, which saves the cost of
        plane waves.
        """
        if (coords == coords[:1]).all():
            coords = coords[:1]
        x, y = (coords - CENTER).unbind(-1)
        features = torch.cat(
            [coords, torch.stack([torch.atan2(y, x), torch.hypot(x, y)], dim=-1)], dim=-1
        )
        phases = ((math.pi * features).unsqueeze(-1) * self.octaves).flatten(-2)
        hidden = torch.cat([self.lift(features), phases.sin(), phases.cos()], dim=-1)
        return coords + coords * self.layers(hidden)


class PointsToGrid(nn.Module):
    """The first spectral layer, from features at points to features on the latent grid."""

    def __init__(self, width: int, modes: tuple[int, ...], latent_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.latent_shape, self.modes = latent_shape, resolved_modes(modes, latent_shape)
        self.mix = ModeMixing(width, width, self.modes)
        self.place = PointwiseLinear(2, width)

    def forward(
        self,
        values: Float[Tensor, "batch points width"],
        image: Float[Tensor, "image points 2"],
        is_active: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch width rows columns"]:
        """Returns the field on the latent grid; masked points do not contribute."""
        masked = at_least_single(values) * is_active.unsqueeze(-1)
        coefficients = self.mix(modes_of_points(masked, image, self.modes))
        latent = from_low_modes(coefficients, self.latent_shape)
        return gelu(latent + self.place(index_coordinates(self.latent_shape, like=values)))


class GridToPoints(nn.Module):
    """The last spectral layer, from features on the latent grid to features at points."""

    def __init__(self, width: int, modes: tuple[int, ...], latent_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.modes = resolved_modes(modes, latent_shape)
        self.mix = ModeMixing(width, width, self.modes)
        self.place = nn.Linear(2, width)

    def forward(
        self,
        latent: Float[Tensor, "batch width rows columns"],
        image: Float[Tensor, "image points 2"],
        coords: Float[Tensor, "batch points 2"],
    ) -> Float[Tensor, "batch points width"]:
        """Returns the field at points of torus coordinates `image` and unit coordinates `coords`."""
        coefficients = self.mix(low_modes(latent, self.modes))
        return points_of_modes(coefficients, image) + self.place(coords)


def modes_of_points(
    values: Float[Tensor, "batch points channels"],
    image: Float[Tensor, "image points 2"],
    modes: tuple[int, ...],
) -> Complex[Tensor, "batch channels rows columns"]:
    r"""Returns $\hat u_k=\sum_n u_n e^{-2\pi i\langle k,\xi_n\rangle}$, a sum and not a mean.

    Args:
        values: $u_n$, zero at masked points.
        image: $\xi_n$, with batch size one if all samples have the same points.
        modes: Number of modes along each axis.
    """

    def transform(values: Tensor, image: Tensor) -> Tensor:
        return values.mT @ plane_waves(image, modes)

    with torch.autocast(values.device.type, enabled=False):
        parts = torch.stack(list(_by_chunks(transform, values, image))).sum(0)
    return torch.view_as_complex(parts.unflatten(-1, (2 * modes[0], modes[1], 2))).conj()


def points_of_modes(
    coefficients: Complex[Tensor, "batch channels rows columns"],
    image: Float[Tensor, "image points 2"],
) -> Float[Tensor, "batch points channels"]:
    r"""Returns $\mathrm{Re}\sum_k\hat u_k e^{2\pi i\langle k,\xi\rangle}$ at the points $\xi$.

    Modes with $k_2>0$ have weight two, because $\hat u_{-k}=\bar{\hat u}_k$.
    """
    rows, columns = coefficients.shape[2:]
    multiplicity = torch.full((columns,), 2.0, dtype=image.dtype, device=image.device)
    multiplicity[0] = 1
    # The real part of a product is the dot product of one factor with the other's conjugate.
    parts = torch.view_as_real((coefficients * multiplicity).conj().resolve_conj()).flatten(2)

    def transform(image: Tensor) -> Tensor:
        return plane_waves(image, (rows // 2, columns)) @ parts.mT

    with torch.autocast(image.device.type, enabled=False):
        return torch.cat(list(_by_chunks(transform, image)), dim=1)


def plane_waves(
    image: Float[Tensor, "image points 2"], modes: tuple[int, ...]
) -> Float[Tensor, "image points parts"]:
    r"""Returns $e^{2\pi i\langle k,\xi\rangle}$ for each mode, real and imaginary parts interleaved."""
    rows, columns = (torch.arange(count, dtype=image.dtype, device=image.device) for count in modes)
    angles = (2 * math.pi * image).unsqueeze(-1)
    first = angles[..., 0, :] * torch.cat([rows, rows - modes[0]])
    second = angles[..., 1, :] * columns
    waves = _unit_phasor(first).unsqueeze(-1) * _unit_phasor(second).unsqueeze(-2)
    return torch.view_as_real(waves).flatten(2)


def _unit_phasor(phase: Tensor) -> Tensor:
    r"""Returns $e^{i\varphi}$."""
    return torch.complex(phase.cos(), phase.sin())


def _by_chunks(function: Callable[..., Tensor], *tensors: Tensor) -> Iterator[Tensor]:
    """Yields `function` of chunks of points; several chunks are recomputed in the backward pass."""
    batch, points = tensors[-1].shape[:2]
    size = max(1, MAX_SITES // batch)
    if points <= size:
        yield function(*tensors)
        return
    for chunk in zip(*(tensor.split(size, dim=1) for tensor in tensors), strict=True):
        yield checkpoint(function, *chunk, use_reentrant=False, preserve_rng_state=False)
