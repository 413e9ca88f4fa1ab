"""What the page shows, as NetCDF: input, truth, prediction and error of one example."""

import tempfile
from pathlib import Path

import numpy as np

from gpo.data.dataset import Trajectories, Variable
from gpo.data.splits import TimeSlice
from gpo.data.writers.netcdf import write_forecast
from gpo.explore.requests import AskedPart
from gpo.explore.session import Session
from gpo.model.ablation import Ablation


def netcdf(session: Session, asked: AskedPart) -> bytes:
    """Returns the content of a NetCDF file; masked sites are NaN."""
    example, task = session.example(asked.example), session.forecaster.task
    whole = session.prediction(asked.example)
    truth = example.target[0]
    columns: list[tuple[Variable, np.ndarray]] = []
    for number, (name, units) in enumerate(zip(task.outputs, task.units, strict=True)):
        parts = {"truth": truth, "predicted": whole, "error": whole - truth}
        if asked.ablation != Ablation():
            parts["parts_off"] = session.prediction(asked.example, asked.ablation)
        columns += [
            (Variable(f"{name}_{part}", units), values[:, number].numpy())
            for part, values in parts.items()
        ]
    data = session.data
    inputs = data.variables if isinstance(data, Trajectories) else data.inputs
    columns += [
        (Variable(f"{variable.name}_given", variable.units), example.fields[0, -1, :, n].numpy())
        for n, variable in enumerate(inputs)
    ]
    is_known = example.weights[0].numpy() > 0
    rows = np.stack([np.where(is_known, values, np.nan) for _, values in columns], -1)
    variables = [variable for variable, _ in columns]
    geometry = session.plane(asked.example).geometry
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "view.nc"
        member = session.members[asked.example]
        if isinstance(member, TimeSlice) and isinstance(data, Trajectories):
            number = member.last if task.lead == 0 else member.target
            times = data.time[number : number + 1]
            write_forecast(path, rows[None, None], geometry, variables, times, data.time_units)
        else:
            write_forecast(path, rows[None], geometry, variables)
        return path.read_bytes()
