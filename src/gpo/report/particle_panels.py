"""What particles carry, beside the field they were made of: the paper's figure of the method."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpo.data.geometry import Geometry
from gpo.evaluate.carried import Carried, carried_field
from gpo.report.contact_sheet import color_limits, draw_panel, panel_height
from gpo.report.particles import draw_particles
from gpo.train.examples import Example
from gpo.train.forecaster import Forecaster

OTHER_DATA = "other-data"
"""Name of the picture that shows data of another kind too."""


def draw_particle_panels(
    forecaster: Forecaster, rows: Mapping[str, tuple[Example, Geometry]]
) -> Figure | None:
    """Returns the field, what its particles carry, the difference and the particles; None without any.

    Args:
        forecaster: A trained model.
        rows: By what they are called, examples and where they lie; data like that of training
            above data of another kind.
    """
    found = {name: carried_field(forecaster, example) for name, (example, _) in rows.items()}
    carried = {name: part for name, part in found.items() if part is not None}
    if not carried or any(geometry.domain.dim == 1 for _, geometry in rows.values()):
        return None
    height = sum(panel_height(rows[name][1]) for name in carried) + 0.3
    figure, grid = plt.subplots(
        len(carried), 4, figsize=(16, height), squeeze=False, layout="constrained"
    )
    variable = forecaster.task.fields[0]
    for (name, part), panels in zip(carried.items(), grid, strict=True):
        _draw_row(list(panels), f"{name}: {variable}", variable, part, *rows[name])
    return figure


def _draw_row(
    panels: list[Axes],
    title: str,
    variable: str,
    carried: Carried,
    example: Example,
    geometry: Geometry,
) -> None:
    is_known = example.weights[0].numpy() > 0
    field, rebuilt = carried.field[:, 0].numpy(), carried.rebuilt[:, 0].numpy()
    error, limits = np.abs(rebuilt - field), color_limits(field[is_known])
    largest = float(np.nan_to_num(error[is_known]).max()) or 1.0
    for panel, name, shown, ends in (
        (panels[0], title, field, limits),
        (panels[1], "as particles carry it", rebuilt, limits),
        (panels[2], "absolute difference", error, (0.0, largest)),
        (panels[3], "", field, limits),
    ):
        draw_panel(panel, name, variable, geometry, np.where(is_known, shown, np.nan), ends)
    draw_particles(panels[3], carried.particles, example.coords[0], geometry.domain)
    panels[3].set_title("particles", fontsize=9)


def save_other_data(
    forecaster: Forecaster, rows: Mapping[str, tuple[Example, Geometry]], folder: Path
) -> None:
    """Draws usual and other data where `write_report` finds it; nothing where there are no particles."""
    figure = draw_particle_panels(forecaster, rows)
    if figure is None:
        return
    folder.mkdir(exist_ok=True)
    figure.savefig(folder / f"{OTHER_DATA}.png", dpi=90)
    plt.close(figure)
