r"""Are content windows used? How much of the field each mode of the paper's variant measures.

A content window is an assignment of sites to modes, so its mass, extent and overlap with others can
be computed. Waves, which cover the whole domain, are in `waves.py`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch
from gpo.interpretation.moments import spread
from gpo.numerics.domain import Domain
from gpo.numerics.norms import normalised_weights


def describe_content_windows(
    forecaster: Forecaster, batches: Sequence[Batch]
) -> list[dict[str, list[Any]]]:
    """Returns the statistics of content windows, layer by layer, the mean over examples.

    Args:
        forecaster: A trained gpo of the paper's variant.
        batches: The examples.
    """
    model = forecaster.operator
    rows: list[list[dict[str, np.ndarray]]] = []
    for batch in batches:
        trace = batch.traced(forecaster)
        weights = normalised_weights(batch.example.weights, batch.example.target).double()
        coords = batch.example.coords.double()
        rows.append(
            [
                window_statistics(windows.double(), coords, weights, model.problem.domain)
                for windows in trace.windows
            ]
        )
    layers = []
    for number in range(model.config.num_layers):
        parts = [row[number] for row in rows]
        means = {name: np.concatenate([part[name] for part in parts]).mean(0) for name in parts[0]}
        layers.append({name: mean.tolist() for name, mean in means.items()})
    return layers


def window_statistics(
    windows: Float[Tensor, "batch heads points modes"],
    coords: Float[Tensor, "batch points dim"],
    weights: Float[Tensor, "batch points"],
    domain: Domain,
) -> dict[str, np.ndarray]:
    r"""Returns statistics of the windows of a layer, example by example.

    - `coverage`: the mass $\sum_jq_jp_{jg}$ of every mode, one per head in all.
    - `entropy`: of a site's assignment, mean over sites, 1 where it is uniform.
    - `effective_modes`: $e^H$ of the masses of a head: the number of modes of equal mass.
    - `extent`: root mean square distance of a window's mass from its center, over that of the
      whole domain: 1 is everywhere.
    - `overlap_in_head`, `overlap_between_heads`: mean cosine of two different windows.
    - `gram_smallest`: smallest over largest singular value of $\bar A^\top A$, test functions
      against trial functions: 0 where two modes are dependent.

    Args:
        windows: Assignments of sites to modes.
        coords: The sites.
        weights: Quadrature weights, which sum to one.
        domain: Defines distances.
    """
    heads, modes = windows.shape[1], windows.shape[-1]
    mass = torch.einsum("bhnm,bn->bhm", windows, weights)
    per_site = -torch.xlogy(windows, windows).sum(-1)
    entropy = torch.einsum("bhn,bn->bh", per_site, weights) / max(np.log(modes), 1e-12)
    fractions = mass / mass.sum(-1, keepdim=True)
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
    statistics = {
        "coverage": mass,
        "entropy": entropy,
        "effective_modes": torch.exp(-torch.xlogy(fractions, fractions).sum(-1)),
        "extent": extent.unflatten(1, (heads, modes)),
        "overlap_in_head": _mean(cosines, is_same_head & is_other),
        "overlap_between_heads": _mean(cosines, ~is_same_head),
        "gram_smallest": singular[..., -1] / singular[..., 0],
    }
    return {name: values.numpy() for name, values in statistics.items()}


def _mean(cosines: Tensor, is_counted: Tensor) -> Tensor:
    """Returns the mean over some pairs of windows; zero where there is no pair."""
    return (cosines * is_counted).sum((1, 2)) / is_counted.sum().clamp_min(1)
