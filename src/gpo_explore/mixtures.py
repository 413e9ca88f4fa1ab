"""Approximation of a field by K Gaussians, compared with K Gaussians on a fixed lattice."""

import time
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.numerics.domain import Domain
from gpo.numerics.footprints import longitude_stretch, tangent_frame
from gpo_explore.arrays import Packet
from gpo_explore.plane import Plane
from gpo_explore.requests import MixtureRequest
from gpo_explore.session import AbandonedError, Session
from gpo_mixture.fitting import fit
from gpo_mixture.lattice import fit_lattice
from gpo_mixture.mixture import GaussianMixture

MAX_GAUSSIANS = 200
"""Largest number of Gaussians."""
MAX_SITES = 2**14
"""Largest number of sites that are fitted and scored; of more, a fixed random sample."""
MAX_SECONDS = 10.0
"""Time limit of a fit, after which its current Gaussians are the result."""


def mixture(
    session: Session, request: MixtureRequest, is_abandoned: Callable[[], bool] = lambda: False
) -> Packet:
    """Returns the Gaussians fitted to one variable of a field, their error and that of a lattice.

    Args:
        session: The run.
        request: Field, variable and number of Gaussians.
        is_abandoned: Checked at every step; the fit is aborted if it returns True.
    """
    if is_abandoned():
        raise AbandonedError
    with session.lock:
        values, sites = _field(session, request)
        plane, example = session.plane(request.example), session.example(request.example)
    coords, weights = example.coords[0, sites], example.weights[0, sites]
    max_count = min(MAX_GAUSSIANS, len(coords.unique(dim=0)))
    if not 1 <= request.count <= max_count:
        raise ValueError(f"`count` must be from 1 to {max_count}, got {request.count}.")

    def compute() -> Packet:
        return _fit(values, coords, weights, plane, request.count, is_abandoned)

    return session.recent_mixtures.get(request, compute)


def _field(session: Session, request: MixtureRequest) -> tuple[Tensor, Tensor]:
    """Returns one variable at the active sites, and the indices of these sites."""
    example = session.example(request.example)
    if request.field == "given":
        frames = example.fields[0]
        if request.frame >= len(frames):
            raise ValueError(f"`frame` must be from 0 to {len(frames) - 1}, got {request.frame}.")
        values = frames[request.frame]
    elif request.field == "truth":
        values = example.target[0]
    else:
        values = session.prediction(request.example, request.ablation)
    request.check(values.shape[1])
    sites = torch.from_numpy(session.active_sites(request.example, MAX_SITES))
    return values[sites, request.variable].double(), sites


def _fit(
    values: Float[Tensor, " points"],
    coords: Float[Tensor, "points dim"],
    weights: Float[Tensor, " points"],
    plane: Plane,
    count: int,
    is_abandoned: Callable[[], bool],
) -> Packet:
    """Fits free Gaussians, and Gaussians on a fixed lattice as a control."""
    start, domain = time.monotonic(), plane.geometry.domain
    is_cut = False

    def should_stop() -> bool:
        nonlocal is_cut
        if is_abandoned():
            raise AbandonedError
        is_cut = is_cut or time.monotonic() - start > MAX_SECONDS
        return is_cut

    fitted = fit(values, coords, weights, count, domain=domain, should_stop=should_stop)
    lattice = fit_lattice(values, coords, weights, count, domain)
    centers = plane.flat(fitted.centers.numpy())
    q = weights / weights.sum()

    def errors(gaussians: GaussianMixture) -> dict[str, float]:
        mean_square = q @ (gaussians(coords)[:, 0] - values).square()
        return {
            "relative_l2": gaussians.error(values, coords, weights),
            "rms": float(mean_square.sqrt()),
            "count": len(gaussians),
        }

    arrays = {
        "centers": centers,
        "covariances": drawn_covariances(fitted, domain, centers),
        "amplitudes": fitted.amplitudes[:, 0].numpy(),
    }
    metadata = {
        "fitted": errors(fitted), "lattice": errors(lattice), "offset": float(fitted.offset[0]),
        "is_cut": is_cut, "most_seconds": MAX_SECONDS, "num_sites": len(values),
    }  # fmt: skip
    return Packet(arrays, metadata)


def drawn_covariances(
    gaussians: GaussianMixture, domain: Domain, centers: np.ndarray
) -> np.ndarray:
    """Returns covariances along the drawn axes: on a sphere, in degrees of longitude and latitude.

    Args:
        gaussians: The Gaussians.
        domain: Their domain.
        centers: Their drawn coordinates.
    """
    if not domain.is_sphere:
        return gaussians.covariances.numpy()
    frame = tangent_frame(gaussians.centers)
    tangent = (frame @ gaussians.covariances @ frame.mT).numpy() * np.rad2deg(1) ** 2
    stretch = np.ones((len(gaussians), 2))
    stretch[:, 0] = longitude_stretch(centers[:, 1])
    return tangent * stretch[:, :, None] * stretch[:, None, :]
