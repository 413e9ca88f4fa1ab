"""How much memory a pass over sites takes: the size of chunks, what is kept, what is refused."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gpo.execution.recompute import Keeps
from gpo.limits import MAX_BYTES, format_bytes, max_bytes
from gpo.transforms.transform import AbstractGridTransform, AbstractWaveTransform

KEPT_BYTES = 3 * 2**30
"""What training keeps for the backward pass at most, where it can be computed again."""

CACHED_NUMBERS = 2**21
"""Numbers that one chunk should write at a time, so that the cache holds them."""

MATRIX_BYTES = 32
"""Of every entry of a matrix sites x modes, while it is made: three times double, twice single."""

LATTICE_BYTES = {1: 500, 2: 1500, 3: 6000}
"""Of every unstructured point, by the number of axes, while its lattice is made, roughly."""


@dataclass(frozen=True)
class LayerSizes:
    """How many numbers a layer has per point, roughly; memory is planned with them."""

    state: int = 32
    """In the state of a point."""
    kept: int = 128
    """That training keeps within the layer, beside state and windows."""
    windows: int = 0
    """In test functions that depend on the field."""
    descriptor: int = 0
    """That later layers need beside the state."""
    modes: int = 1
    """Test functions, of all heads."""


def choose_kept(sizes: Sequence[LayerSizes], values: Tensor) -> Keeps:
    """Returns what training keeps for the backward pass: as much as there is room for.

    Args:
        sizes: Of all layers in the order of application.
        values: The input field at the sites.
    """
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return Keeps.ALL
    room = KEPT_BYTES / values.element_size() / values[..., 0].numel()
    # Gradients take as much as what they belong to.
    room -= sum(layer.state + 2 * layer.descriptor for layer in sizes)
    windows = sum(layer.windows for layer in sizes)
    if windows + sum(layer.kept for layer in sizes) <= room:
        return Keeps.ALL
    return Keeps.WINDOWS if windows <= room else Keeps.STATES


def chunk_points(
    sizes: Sequence[LayerSizes],
    num_samples: int,
    chunk_size: int | None,
    transform: AbstractWaveTransform | None,
) -> int:
    """Returns how many points of every sample make a chunk that the cache holds.

    Args:
        sizes: Of all layers.
        num_samples: In a batch.
        chunk_size: Points of all samples together; chosen where None.
        transform: Waves at the sites, if any; on a grid they take next to nothing.
    """
    largest = sizes[-1]
    written = 4 * largest.state if isinstance(transform, AbstractGridTransform) else largest.modes
    return max(1, (chunk_size or CACHED_NUMBERS // max(written, 1)) // num_samples)


def memory_problem(needed: int, num_sites: int, advice: str) -> str | None:
    """Returns why a pass over sites takes too much memory, and what helps; None where it does not.

    Args:
        needed: What `Execution.needed_bytes` returned.
        num_sites: Sites of a sample.
        advice: What takes less.
    """
    if needed <= max_bytes():
        return None
    return (
        f"{num_sites:,} sites would take about {format_bytes(needed)} of memory at once, more than "
        f"{format_bytes(max_bytes())}. {advice}, or allow it: {MAX_BYTES}={needed}."
    )
