"""Overview figure of one prediction: input, truth, prediction, error, particles and layers."""

from collections.abc import Callable
from pathlib import Path

from jaxtyping import Float
from matplotlib import pyplot as plt
from torch import Tensor

from gpo.model.operator import GaussianParticleOperator
from gpo.model.particles import Particles
from gpo.report.fields import draw_field
from gpo.report.motion import draw_heaviest
from gpo.report.particles import draw_particles


def draw_prediction(
    path: str | Path,
    model: GaussianParticleOperator,
    values: Float[Tensor, "1 points in_channels"],
    coords: Float[Tensor, "points dim"],
    target: Float[Tensor, "1 points out_channels"],
    *,
    complete: Callable[[Tensor], Tensor] = lambda output: output,
) -> Path:
    """Writes a PNG with input, truth, prediction, error, particles and activations of the layers.

    Args:
        path: The file to write; missing folders are created.
        model: A trained operator on a plane or a sphere.
        values: The input field.
        coords: The sites.
        target: The true output at the sites.
        complete: Maps the output of the operator, which may be an increment, to the predicted field.
    """
    trace, domain = model.trace(values, coords), model.problem.domain
    output, truth = complete(trace.output)[0, :, 0], target[0, :, 0]
    largest = truth.abs().max().item() or 1.0
    figure, grid = plt.subplots(2, 4, figsize=(17, 7.5), layout="constrained")
    limits = (-largest, largest)
    draw_field(grid[0, 0], coords, values[0, :, -target.shape[2]], domain, title="input a")
    draw_field(grid[0, 1], coords, truth, domain, title="truth u", limits=limits)
    draw_field(grid[0, 2], coords, output, domain, title="prediction", limits=limits)
    error = (output - truth).abs()
    draw_field(
        grid[0, 3], coords, error, domain, title="absolute error",
        limits=(0.0, max(error.max().item(), 1e-12)), color_map="cividis",
    )  # fmt: skip
    if trace.particles and isinstance(trace.particles[-1], Particles):
        draw = draw_particles if trace.waves is None else draw_heaviest
        grid[1, 0].set_title("particles")
        draw(grid[1, 0], trace.particles[-1], coords, domain)
    last = len(trace.states) - 1
    for axes, layer in zip(grid[1, 1:3], (0, last), strict=True):
        # Renormalisation keeps the sum over Gaussians; the sum of squares shows how mass is distributed.
        spread = trace.states[layer][0].square().sum(-1)
        draw_field(
            axes, coords, spread, domain, title=f"Σ {'z' if trace.windows else 'h'}² after layer {layer}",
            limits=(0.0, spread.max().item()), color_map="viridis",
        )  # fmt: skip
    if trace.windows:
        window = trace.windows[-1][0, 0]
        widest = window.std(0).argmax()
        draw_field(
            grid[1, 3], coords, window[:, widest], domain,
            title=f"window of mode {widest.item()}, layer {last}",
            limits=(0.0, window[:, widest].max().item()), color_map="viridis",
        )  # fmt: skip
    elif trace.waves is not None and trace.modes:
        energy = trace.modes[-1].fields[:, :, 0].square().sum((0, 2))
        mode = int((energy * trace.waves.vectors.any(-1)).argmax())
        vector = ", ".join(f"{part:.3g}" for part in trace.waves.vectors[mode].tolist())
        draw_field(
            grid[1, 3], coords, trace.waves.at(coords, mode), domain,
            title=f"strongest window of layer {last}, k = ({vector})",
        )  # fmt: skip
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path
