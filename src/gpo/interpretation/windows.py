r"""Are windows used? How much of the field each mode measures, where, and how distinctly.

A content window is an assignment of sites to modes, so all of this can be counted. A wave covers
the whole domain whatever the field is; what can be asked of it is in `waves.py`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch
from gpo.interpretation.waves import read_waves
from gpo.model.operator import GaussianParticleOperator
from gpo.model.paper import Stage
from gpo.numerics.domain import Domain
from gpo.numerics.norms import normalised_weights


def read_windows(forecaster: Forecaster, batches: Sequence[Batch]) -> dict[str, Any]:
    """Returns how windows are used, layer by layer, for `interpret.json`.

    Args:
        forecaster: A trained gpo.
        batches: The examples.
    """
    model = forecaster.model
    if not isinstance(model, GaussianParticleOperator) or model.config.num_layers == 0:
        return {"reason": "the model has no layers: there are no windows"}
    if model.config.variant == "geometric":
        return {"kind": "waves", **read_waves(forecaster, batches)}
    rows: list[list[dict[str, np.ndarray]]] = []
    for batch in batches:
        trace = batch.traced(forecaster)
        weights = normalised_weights(batch.example.weights, batch.example.target).double()
        coords = batch.example.coords.double()
        rows.append(
            [
                window_numbers(stage.windows.double(), coords, weights, model.config.space)
                for stage in trace.stages
                if isinstance(stage, Stage)
            ]
        )
    layers = []
    for number in range(model.config.num_layers):
        parts = [row[number] for row in rows]
        means = {name: np.concatenate([part[name] for part in parts]).mean(0) for name in parts[0]}
        layers.append({name: mean.tolist() for name, mean in means.items()})
    return {"kind": "content", "layers": layers}


def window_numbers(
    windows: Float[Tensor, "batch heads points modes"],
    coords: Float[Tensor, "batch points dim"],
    weights: Float[Tensor, "batch points"],
    domain: Domain,
) -> dict[str, np.ndarray]:
    r"""Returns what there is to say about the windows of a layer, example by example.

    - `coverage`: the mass $\sum_jq_jp_{jg}$ of every mode, one per head in all.
    - `entropy`: of a site's assignment, mean over sites, 1 where all modes have the same share.
    - `effective_modes`: $e^H$ of the masses of a head: how many modes of equal mass that would be.
    - `extent`: root mean square distance of a window's mass from its middle, over that of the
      whole domain: 1 is everywhere.
    - `overlap_in_head`, `overlap_between_heads`: mean cosine of two different windows.
    - `gram_smallest`: smallest over largest singular value of $\bar A^\top A$, test functions
      against what they scatter to: 0 where two modes measure the same.

    Args:
        windows: Assignments of sites to modes.
        coords: The sites.
        weights: Quadrature weights, which sum to one.
        domain: Where distances are taken.
    """
    heads, modes = windows.shape[1], windows.shape[-1]
    mass = torch.einsum("bhnm,bn->bhm", windows, weights)
    per_site = -torch.xlogy(windows, windows).sum(-1)
    entropy = torch.einsum("bhn,bn->bh", per_site, weights) / max(np.log(modes), 1e-12)
    share = mass / mass.sum(-1, keepdim=True)
    held = (windows * weights[:, None, :, None]).transpose(2, 3).flatten(1, 2)
    extent = spread(held, coords, domain) / spread(weights.unsqueeze(1), coords, domain)
    normal = (windows * weights.sqrt()[:, None, :, None]).transpose(2, 3).flatten(1, 2)
    normal = torch.nn.functional.normalize(normal, dim=-1)
    cosines = normal @ normal.mT
    head = torch.arange(heads).repeat_interleave(modes)
    is_same_head = head.unsqueeze(0) == head.unsqueeze(1)
    is_other = ~torch.eye(heads * modes, dtype=torch.bool)
    tests = windows * weights[:, None, :, None] / mass.clamp_min(1e-300).unsqueeze(2)
    singular = torch.linalg.svdvals(tests.mT @ windows)
    numbers = {
        "coverage": mass,
        "entropy": entropy,
        "effective_modes": torch.exp(-torch.xlogy(share, share).sum(-1)),
        "extent": extent.unflatten(1, (heads, modes)),
        "overlap_in_head": _mean(cosines, is_same_head & is_other),
        "overlap_between_heads": _mean(cosines, ~is_same_head),
        "gram_smallest": singular[..., -1] / singular[..., 0],
    }
    return {name: number.numpy() for name, number in numbers.items()}


def spread(
    mass: Float[Tensor, "batch windows points"],
    coords: Float[Tensor, "batch points dim"],
    domain: Domain,
) -> Float[Tensor, "batch windows"]:
    """Returns the root mean square distance of mass from its middle, the shortest way round."""
    share = mass / mass.sum(-1, keepdim=True).clamp_min(1e-300)
    offset = domain.offset(coords.unsqueeze(1), middle(share, coords, domain).unsqueeze(2))
    return torch.einsum("bwn,bwnd->bw", share, offset.square()).sqrt()


def middle(
    share: Float[Tensor, "batch windows points"],
    coords: Float[Tensor, "batch points dim"],
    domain: Domain,
) -> Float[Tensor, "batch windows dim"]:
    """Returns the mean place of mass that sums to one: around closed axes, and on the sphere."""
    if domain.is_sphere or not any(domain.periodic):
        return domain.wrap(share @ coords)
    angles = 2 * torch.pi * domain.to_unit(coords)
    turn = torch.atan2(share @ angles.sin(), share @ angles.cos()) / (2 * torch.pi)
    straight = share @ domain.to_unit(coords)
    return domain.from_unit(torch.where(torch.tensor(domain.periodic), turn % 1, straight))


def _mean(cosines: Tensor, is_counted: Tensor) -> Tensor:
    """Returns the mean over some pairs of windows; zero where there is no pair."""
    return (cosines * is_counted).sum((1, 2)) / is_counted.sum().clamp_min(1)
