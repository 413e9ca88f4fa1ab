"""The door of the models: what came in, checked, completed and brought to one shape.

Coordinates are counted from the corner of the domain from here on (`Domain.local`), so that no
digit is lost where the domain is far from zero and coordinates are given in double precision.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gpo.numerics.domain import Domain
from gpo.numerics.neighbours import Neighbours
from gpo.numerics.norms import normalised_weights
from gpo.parallel.shard import SINGLE_PROCESS, SpatialShard
from gpo.transforms.site_geometry import CountedSites, SiteGeometry

MAX_BOX_LENGTHS = 10
"""A coordinate farther than this many box lengths from the box is a mistake of units."""

MASK_ADVICE = "Give missing sites weight 0 in `weights`."


@dataclass(frozen=True)
class FixedGeometry:
    """Sites and queries that never change, with all that has to be searched or solved for there.

    A model that is exported, or called very often on the same sites, computes this once:
    `GaussianParticleOperator.fix` does.
    """

    coords: Float[Tensor, "1 points dim"]
    weights: Float[Tensor, "1 points"]
    """Quadrature weights, which sum to one; zero at masked sites."""
    has_mask: bool
    """Whether any site is masked."""
    queries: Float[Tensor, "1 queries dim"] | None = None
    """Where the output is asked for; at the sites when not given."""
    neighbours: Neighbours | None = None
    """The sites next to every query."""
    geometry: SiteGeometry | None = None
    """Waves at the sites and their lattice; none in the paper's variant, whose windows depend on the field."""
    query_geometry: SiteGeometry | None = None
    """Waves at the queries, and where these are on the lattice."""


@dataclass(frozen=True)
class Sites:
    """A batch of fields on context sites, and where their answers are asked for."""

    values: Float[Tensor, "batch points channels"]
    """The input field; zero at masked sites."""
    coords: Float[Tensor, "#batch points dim"]
    """Counted from the corner of the domain."""
    weights: Float[Tensor, "#batch points"]
    """Quadrature weights, which sum to one; zero at masked sites."""
    queries: Float[Tensor, "#batch queries dim"] | None
    """Where the output is asked for, counted likewise; at the sites when not given."""
    shard: SpatialShard = SINGLE_PROCESS
    """Which part of all sites this process holds."""
    fixed: FixedGeometry | None = None
    """What was computed for these sites already; they are then one set for all samples."""
    geometry: SiteGeometry | None = None
    """Waves there and their lattice, where they are some of the sites that these were found for."""
    given_type: torch.dtype | None = None
    """In which coordinates were given, and places are handed out again; that of values when None."""

    def chosen(self, counted: CountedSites) -> "Sites":
        """Returns the sites that count alone."""
        values, coords, weights = (
            part[:, counted.index] for part in (self.values, self.coords, self.weights)
        )
        return Sites(values, coords, weights, self.queries, self.shard, geometry=counted.geometry)

    @classmethod
    def at(cls, fixed: FixedGeometry, values: Float[Tensor, "batch points channels"]) -> "Sites":
        """Returns fields on sites that were checked before; their values are not."""
        if fixed.has_mask:
            values = torch.where(fixed.weights.unsqueeze(-1) > 0, values, 0.0)
        return cls(values, fixed.coords, fixed.weights, fixed.queries, fixed=fixed)

    @property
    def is_counted(self) -> Bool[Tensor, "#batch points"]:
        """False at masked sites."""
        return self.weights > 0


def check_sites(
    in_channels: int,
    domain: Domain,
    dtype: torch.dtype,
    values: Tensor,
    coords: Tensor,
    weights: Tensor | None = None,
    queries: Tensor | None = None,
    shard: SpatialShard = SINGLE_PROCESS,
) -> Sites:
    """Returns the sites, or raises a `ValueError` that names argument, expected and received.

    Shapes are always checked; contents (finite, inside the domain, not all masked) are not
    while a model is being compiled, because a graph cannot raise.
    """
    given = {"values": values, "coords": coords, "weights": weights, "queries": queries}
    for name, tensor in given.items():
        if tensor is not None and not isinstance(tensor, Tensor):
            raise ValueError(
                f"`{name}` must be a torch.Tensor, got {type(tensor).__name__}. "
                f"Convert it: torch.as_tensor({name}, dtype={dtype})."
            )
    _check_values(values, in_channels, dtype)
    batch, points = values.shape[:2]
    coords = _batched_coords("coords", coords, values, domain.dim)
    if coords.shape[1] != points:
        raise ValueError(
            f"`coords` must have one row per site of `values` ({points}), got {coords.shape[1]}."
        )
    if queries is not None:
        queries = check_queries(queries, values, domain)
    checks_contents = not torch.compiler.is_compiling()
    if weights is None:
        is_counted = torch.ones_like(values[..., 0], dtype=torch.bool)
    else:
        weights = _batched_weights(weights, batch, points).to(values)
        if checks_contents:
            check_weights("weights", weights, shard)
        is_counted = weights > 0
    if checks_contents:
        check_finite("values", values, is_counted, MASK_ADVICE)
        _check_place("coords", coords, is_counted, domain)
    coords, given_type = _local(coords, values, domain), coords.dtype
    normalised = normalised_weights(weights, values, shard)
    if weights is not None:
        zero = torch.zeros((), dtype=values.dtype, device=values.device)
        values = torch.where(is_counted.unsqueeze(-1), values, zero)
        coords = torch.where(coords.isfinite(), coords, zero)
    return Sites(values, coords, normalised, queries, shard, given_type=given_type)


def check_queries(
    queries: Tensor, values: Float[Tensor, "batch points channels"], domain: Domain
) -> Float[Tensor, "batch queries dim"]:
    """Returns local queries for every sample, or raises a `ValueError` that says what is wrong.

    Args:
        queries: Where answers are asked for.
        values: The field, whose samples and type they get.
        domain: Where they must lie.
    """
    queries = _batched_coords("queries", queries, values, domain.dim)
    if not torch.compiler.is_compiling():
        everywhere = torch.ones_like(queries[..., 0], dtype=torch.bool)
        _check_place("queries", queries, everywhere, domain)
    return _local(queries, values, domain)


def _local(coords: Tensor, values: Tensor, domain: Domain) -> Tensor:
    """Returns places as a model takes them: counted from the corner, then in its own precision."""
    is_shared = coords.ndim == 3 and coords.stride(0) == 0
    local = domain.to_local(coords[:1] if is_shared else coords).to(values)
    return local.expand_as(coords)


def _check_values(values: Tensor, in_channels: int, dtype: torch.dtype) -> None:
    if values.ndim != 3:
        raise ValueError(
            f"`values` must have axes (batch, points, channels), got shape {tuple(values.shape)}."
        )
    if values.shape[0] == 0 or values.shape[1] == 0:
        raise ValueError(
            f"`values` must hold at least one sample and one site, got shape {tuple(values.shape)}."
        )
    if values.shape[2] != in_channels:
        raise ValueError(
            f"`values` must have in_channels={in_channels} channels, got {values.shape[2]}."
        )
    if values.dtype != dtype and not torch.is_autocast_enabled(values.device.type):
        other = f" or model.to({values.dtype})" if values.is_floating_point() else ""
        raise ValueError(
            f"`values` must have the model's dtype {dtype}, got {values.dtype}. "
            f"Convert: values.to({dtype}){other}."
        )


def _batched_coords(name: str, coords: Tensor, values: Tensor, dim: int) -> Tensor:
    """Returns places for every sample, in double precision where they were given in it."""
    batch = len(values)
    if coords.ndim not in (2, 3):
        raise ValueError(
            f"`{name}` must have axes (points, dim) or (batch, points, dim), "
            f"got shape {tuple(coords.shape)}."
        )
    if coords.shape[-1] != dim:
        raise ValueError(f"`{name}` must have dim={dim} coordinates, got {coords.shape[-1]}.")
    if coords.shape[-2] == 0:
        raise ValueError(f"`{name}` must hold at least one point, got shape {tuple(coords.shape)}.")
    coords = coords.to(
        values.device, torch.double if coords.dtype == torch.double else values.dtype
    )
    if coords.ndim == 2:
        return coords.expand(batch, -1, -1)
    if coords.shape[0] != batch:
        raise ValueError(
            f"`{name}` must have the batch size of `values` ({batch}), got {coords.shape[0]}."
        )
    return coords


def _batched_weights(weights: Tensor, batch: int, points: int) -> Tensor:
    if tuple(weights.shape) not in ((points,), (batch, points)):
        raise ValueError(
            f"`weights` must have shape ({points},) or ({batch}, {points}), "
            f"got {tuple(weights.shape)}."
        )
    return weights.expand(batch, -1)


def check_weights(name: str, weights: Tensor, shard: SpatialShard) -> None:
    """Raises a `ValueError` where weights are no numbers, negative, or all zero in some sample."""
    if not bool(weights.isfinite().all()):
        raise ValueError(f"`{name}` must be finite, got NaN or infinity.")
    if bool((weights < 0).any()):
        raise ValueError(f"`{name}` must not be negative, got {weights.min().item():g}.")
    empty = (shard.sum(weights.sum(1)) == 0).nonzero().flatten().tolist()
    if empty:
        raise ValueError(
            f"`{name}` must leave at least one site of every sample, "
            f"got only zeros (all sites masked) in sample {empty[0]}."
        )


def check_finite(name: str, tensor: Tensor, is_counted: Tensor, advice: str) -> None:
    """Raises a `ValueError` that counts and places what is not finite at counted sites."""
    is_bad = ~tensor.isfinite() & is_counted.unsqueeze(-1)
    if bool(is_bad.any()):
        where = is_bad.nonzero()
        raise ValueError(
            f"`{name}` must be finite, got {len(where)} NaN or infinite numbers, "
            f"the first at index {tuple(where[0].tolist())}. {advice}"
        )


def _check_place(name: str, coords: Tensor, is_counted: Tensor, domain: Domain) -> None:
    check_finite(name, coords, is_counted, "Every point needs a place.")
    counted = coords[is_counted]
    if domain.is_sphere:
        norms = counted.norm(dim=-1)
        tolerance = max(1e-3, 4 * torch.finfo(norms.dtype).eps)
        if bool(((norms - 1).abs() > tolerance).any()):
            raise ValueError(
                f"`{name}` must be unit vectors on the sphere, got lengths from {norms.min():.4g} "
                f"to {norms.max():.4g}. Longitudes and latitudes: gpo.unit_vectors(lon, lat)."
            )
        return
    unit = domain.to_unit(counted)
    is_open = ~torch.tensor(domain.periodic, device=unit.device)
    is_far = ((unit < -MAX_BOX_LENGTHS) | (unit > 1 + MAX_BOX_LENGTHS)) & is_open
    if bool(is_far.any()):
        raise ValueError(
            f"`{name}` must lie near the domain, lower={domain.lower}, upper={domain.upper}, got "
            f"coordinates from {counted.amin(0).tolist()} to {counted.amax(0).tolist()}. "
            "Build the model with domain=Domain.around(coords)."
        )
