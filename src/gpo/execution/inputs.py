"""Validates the input of models: what comes in is checked, completed and brought to one shape.

Coordinates are counted from the corner of the domain from here on (`Domain.local`), so that no
digit is lost where the domain is far from zero and coordinates are in double precision.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gpo.numerics.domain import Domain
from gpo.numerics.norms import normalised_weights
from gpo.parallel.shard import SINGLE_PROCESS, SpatialShard

MAX_BOX_LENGTHS = 10
"""A coordinate farther than this many box lengths from the box is a mistake of units."""

MASK_ADVICE = "Give missing sites weight 0 in `weights`."


@dataclass(frozen=True)
class SiteInput:
    """A batch of fields on sites, as models take it."""

    values: Float[Tensor, "batch points channels"]
    """The input field; zero at masked sites."""
    coords: Float[Tensor, "batch points dim"]
    """Counted from the corner of the domain."""
    weights: Float[Tensor, "batch points"]
    """Quadrature weights, which sum to one; zero at masked sites."""
    coords_dtype: torch.dtype
    """The type of the coordinates that came in, in which positions are returned."""

    @property
    def shared_coords(self) -> Float[Tensor, "#batch points dim"]:
        """The coordinates, one set where all samples have the same."""
        return _shared(self.coords)

    @property
    def is_active(self) -> Bool[Tensor, "batch points"]:
        """False at masked sites."""
        return self.weights > 0


def check_sites(
    in_channels: int,
    domain: Domain,
    dtype: torch.dtype,
    values: Tensor,
    coords: Tensor,
    weights: Tensor | None = None,
    shard: SpatialShard = SINGLE_PROCESS,
) -> SiteInput:
    """Returns fields on sites, or raises a `ValueError` that names argument, expected and received.

    Shapes are always checked; values (finite, inside the domain, not all masked) are not
    while a model is being compiled, because a graph cannot raise.

    Args:
        in_channels: Channels that the model takes.
        domain: Where its sites lie.
        dtype: The type of its parameters.
        values: The input field.
        coords: The sites.
        weights: Quadrature weights.
        shard: Which part of all sites this process holds.
    """
    for name, tensor in {"values": values, "coords": coords, "weights": weights}.items():
        _check_tensor(name, tensor, dtype)
    _check_values(values, in_channels, dtype)
    batch, points = values.shape[:2]
    coords = _batched_coords("coords", coords, values, domain.dim)
    if coords.shape[1] != points:
        raise ValueError(
            f"`coords` must have one row per site of `values` ({points}), got {coords.shape[1]}."
        )
    checks_values = not torch.compiler.is_compiling()
    if weights is None:
        is_active = torch.ones_like(values[..., 0], dtype=torch.bool)
    else:
        weights = _batched_weights(weights, batch, points).to(values)
        if checks_values:
            check_weights("weights", weights, shard)
        is_active = weights > 0
    if checks_values:
        check_finite("values", values, is_active, MASK_ADVICE)
        _check_inside("coords", coords, is_active, domain)
    coords, coords_dtype = _local(coords, values, domain), coords.dtype
    normalised = normalised_weights(weights, values, shard)
    if weights is not None:
        zero = torch.zeros((), dtype=values.dtype, device=values.device)
        values = torch.where(is_active.unsqueeze(-1), values, zero)
        coords = torch.where(coords.isfinite(), coords, zero)
    return SiteInput(values, coords, normalised, coords_dtype)


def check_queries(
    queries: Tensor, values: Float[Tensor, "batch points channels"], domain: Domain
) -> Float[Tensor, "sets queries dim"]:
    """Returns local queries, one set where all samples have the same, or raises a `ValueError`.

    Args:
        queries: The points at which the output is evaluated.
        values: The input field, which sets their batch size and type.
        domain: Where they must lie.
    """
    _check_tensor("queries", queries, values.dtype)
    queries = _batched_coords("queries", queries, values, domain.dim)
    if not torch.compiler.is_compiling():
        everywhere = torch.ones_like(queries[..., 0], dtype=torch.bool)
        _check_inside("queries", queries, everywhere, domain)
    return _shared(_local(queries, values, domain))


def _check_tensor(name: str, tensor: object, dtype: torch.dtype) -> None:
    if tensor is not None and not isinstance(tensor, Tensor):
        raise ValueError(
            f"`{name}` must be a torch.Tensor, got {type(tensor).__name__}. "
            f"Convert it: torch.as_tensor({name}, dtype={dtype})."
        )


def _local(coords: Tensor, values: Tensor, domain: Domain) -> Tensor:
    """Returns positions counted from the corner of the domain, in the precision of the values."""
    is_shared = coords.ndim == 3 and coords.stride(0) == 0
    local = domain.to_local(coords[:1] if is_shared else coords).to(values)
    return local.expand_as(coords)


def _shared(coords: Float[Tensor, "batch points dim"]) -> Float[Tensor, "sets points dim"]:
    """Returns positions, one set where all samples have the same."""
    if coords.stride(0) == 0 or len(coords) == 1:
        return coords[:1]
    if torch.compiler.is_compiling():
        return coords
    return coords[:1] if bool((coords == coords[:1]).all()) else coords


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
    """Returns positions for every sample, in double precision where they came in it."""
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
    """Raises a `ValueError` where weights are not finite, negative, or all zero in some sample."""
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


def check_finite(name: str, tensor: Tensor, is_active: Tensor, advice: str) -> None:
    """Raises a `ValueError` that counts the non-finite numbers at active sites."""
    is_bad = ~tensor.isfinite() & is_active.unsqueeze(-1)
    if bool(is_bad.any()):
        where = is_bad.nonzero()
        raise ValueError(
            f"`{name}` must be finite, got {len(where)} NaN or infinite numbers, "
            f"the first at index {tuple(where[0].tolist())}. {advice}"
        )


def _check_inside(name: str, coords: Tensor, is_active: Tensor, domain: Domain) -> None:
    check_finite(name, coords, is_active, "Every point needs a position.")
    active = coords[is_active]
    if domain.is_sphere:
        norms = active.norm(dim=-1)
        tolerance = max(1e-3, 4 * torch.finfo(norms.dtype).eps)
        if bool(((norms - 1).abs() > tolerance).any()):
            raise ValueError(
                f"`{name}` must be unit vectors on the sphere, got lengths from {norms.min():.4g} "
                f"to {norms.max():.4g}. Longitudes and latitudes: gpo.unit_vectors(lon, lat)."
            )
        return
    unit = domain.to_unit(active)
    is_open = ~torch.tensor(domain.periodic, device=unit.device)
    is_far = ((unit < -MAX_BOX_LENGTHS) | (unit > 1 + MAX_BOX_LENGTHS)) & is_open
    if bool(is_far.any()):
        raise ValueError(
            f"`{name}` must lie near the domain, lower={domain.lower}, upper={domain.upper}, got "
            f"coordinates from {active.amin(0).tolist()} to {active.amax(0).tolist()}. "
            "Build the model with domain=Domain.around(coords)."
        )
