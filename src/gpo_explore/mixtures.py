"""A shown field as K Gaussians, beside as many on a fixed lattice: ellipses over the field, and two errors."""

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

MAX_PARTICLES = 200
"""Gaussians that are fitted while the page waits."""
MAX_SITES = 2**14
"""Sites that are fitted and scored; of more, a fixed random choice."""
MOST_SECONDS = 10.0
"""After so long no other step follows: the Gaussians are those found until then."""


def mixture(
    session: Session, request: MixtureRequest, is_abandoned: Callable[[], bool] = lambda: False
) -> Packet:
    """Returns the Gaussians that are closest to one variable of a field, and the error of a lattice.

    Args:
        session: The run.
        request: What is asked for.
        is_abandoned: Whether nobody waits any more; the fit then ends after the step under way.
    """
    if is_abandoned():
        raise AbandonedError
    with session.lock:
        values, sites = _field(session, request)
        plane, example = session.plane(request.example), session.example(request.example)
    coords, weights = example.coords[0, sites], example.weights[0, sites]
    most = min(MAX_PARTICLES, len(coords.unique(dim=0)))
    if not 1 <= request.count <= most:
        raise ValueError(f"`count` must be from 1 to {most}, got {request.count}.")

    def compute() -> Packet:
        return _fitted(values, coords, weights, plane, request.count, is_abandoned)

    return session.recent_mixtures.get(request, compute)


def _field(session: Session, request: MixtureRequest) -> tuple[Tensor, Tensor]:
    """Returns one variable at the sites that count, and the numbers of these sites."""
    example = session.example(request.example)
    if request.field == "given":
        frames = example.fields[0]
        if request.frame >= len(frames):
            raise ValueError(f"`frame` must be from 0 to {len(frames) - 1}, got {request.frame}.")
        rows = frames[request.frame]
    elif request.field == "truth":
        rows = example.target[0]
    else:
        rows = session.prediction(request.example, request.ablation)
    request.check(rows.shape[1])
    known = np.flatnonzero(example.weights[0].numpy() > 0)
    chosen = np.sort(np.random.default_rng(0).permutation(known)[:MAX_SITES])
    sites = torch.from_numpy(chosen)
    return rows[sites, request.variable].double(), sites


def _fitted(
    values: Float[Tensor, " points"],
    coords: Float[Tensor, "points dim"],
    weights: Float[Tensor, " points"],
    plane: Plane,
    count: int,
    is_abandoned: Callable[[], bool],
) -> Packet:
    """Fits both kinds of Gaussians to a field."""
    start, domain = time.monotonic(), plane.geometry.domain
    is_cut = False

    def should_stop() -> bool:
        nonlocal is_cut
        if is_abandoned():
            raise AbandonedError
        is_cut = is_cut or time.monotonic() - start > MOST_SECONDS
        return is_cut

    found = fit(values, coords, weights, count, domain=domain, should_stop=should_stop)
    lattice = fit_lattice(values, coords, weights, count, domain)
    centers = plane.flat(found.centers.numpy())
    q = weights / weights.sum()

    def errors(made: GaussianMixture) -> dict[str, float]:
        square = q @ (made(coords)[:, 0] - values).square()
        return {
            "relative_l2": made.error(values, coords, weights),
            "rms": float(square.sqrt()),
            "count": len(made),
        }

    arrays = {
        "centers": centers,
        "covariances": drawn_covariances(found, domain, centers),
        "amplitudes": found.amplitudes[:, 0].numpy(),
    }
    metadata = {
        "fitted": errors(found), "lattice": errors(lattice), "offset": float(found.offset[0]),
        "is_cut": is_cut, "most_seconds": MOST_SECONDS, "num_sites": len(values),
    }  # fmt: skip
    return Packet(arrays, metadata)


def drawn_covariances(found: GaussianMixture, domain: Domain, centers: np.ndarray) -> np.ndarray:
    """Returns covariances along the drawn axes: on a sphere in degrees of longitude and latitude.

    Args:
        found: The Gaussians.
        domain: Where they live.
        centers: Where they are drawn.
    """
    if not domain.is_sphere:
        return found.covariances.numpy()
    frame = tangent_frame(found.centers)
    tangent = (frame @ found.covariances @ frame.mT).numpy() * np.rad2deg(1) ** 2
    stretch = np.ones((len(found), 2))
    stretch[:, 0] = longitude_stretch(centers[:, 1])
    return tangent * stretch[:, :, None] * stretch[:, None, :]
