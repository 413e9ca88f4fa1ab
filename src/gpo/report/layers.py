r"""What happens between the encoder and the decoder, layer by layer, on the sites.

The paper draws $A^{(k)}(x)=\sum_gz^{(k)}_g(x)$. Row renormalisation keeps that sum, so with it
all layers look alike; the sum of squares shows how the mass is spread over the Gaussians. The
geometric variant has no basis after the encoder but a state $h$, and windows that no field changes.
"""

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from gpo.data.geometry import Geometry
from gpo.data.split import evenly
from gpo.model.trace import Trace
from gpo.report.contact_sheet import draw_panel, panel_height

MAX_LAYERS = 6
"""Panels in a row; more layers are thinned evenly."""


def draw_layers(trace: Trace, geometry: Geometry, is_known: np.ndarray) -> Figure:
    """Returns the activation after every layer and, below, each layer's most local window.

    Args:
        trace: A forward pass; its first sample is drawn.
        geometry: The sites.
        is_known: False at masked sites, which stay white.
    """
    last = len(trace.bases) - 1
    shown = evenly(range(last + 1), MAX_LAYERS)
    rows = 2 if trace.windows else 1
    size = (3.6 * len(shown), rows * panel_height(geometry) + 0.4)
    figure, grid = plt.subplots(rows, len(shown), figsize=size, squeeze=False, layout="constrained")
    what = "Σ z²" if trace.windows else "Σ h²"
    for column, layer in enumerate(shown):
        spread = trace.bases[layer][0].square().sum(-1)
        title = f"{what} of the encoder" if layer == 0 else f"{what} after layer {layer}"
        _panel(grid[0, column], title, "activation", geometry, spread, is_known)
        if not trace.windows:
            continue
        if layer == 0:
            grid[1, column].set_axis_off()
            continue
        window = _most_local(trace.windows[layer - 1][0])
        _panel(
            grid[1, column], f"a window of layer {layer}", "weight p", geometry, window, is_known
        )
    return figure


def _most_local(windows: Tensor) -> Tensor:
    """Returns the window, heads by points by modes, that differs most from place to place."""
    flat = windows.permute(0, 2, 1).flatten(0, 1)
    return flat[flat.std(-1).argmax()]


def _panel(
    axes: Axes, title: str, label: str, geometry: Geometry, values: Tensor, known: np.ndarray
) -> None:
    numbers = np.where(known, values.detach().cpu().numpy(), np.nan)
    ends = float(np.nanmin(numbers)), float(np.nanmax(numbers))
    draw_panel(axes, title, label, geometry, numbers, ends if ends[1] > ends[0] else (0.0, 1.0))
