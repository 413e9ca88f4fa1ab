"""An example as a NetCDF file that says what it is of: the run, the example, the parts that were off."""

import json
import tempfile
from pathlib import Path

import numpy as np
import torch

from gpo.data.dataset import Trajectories, Variable
from gpo.data.splits import TimeSlice
from gpo.data.writers.netcdf import write_forecast
from gpo.model.ablation import Ablation
from gpo.optional import require
from gpo_explore.requests import AblationRequest
from gpo_explore.session import Session


def netcdf(session: Session, request: AblationRequest) -> bytes:
    """Returns input, truth, prediction and error of an example as a NetCDF file; NaN where masked.

    Global attributes name the run, the example and the parts that were off. Where sites were off,
    the variable `is_off` is one there.
    """
    netcdf4 = require("netCDF4", "data", "Writing NetCDF")
    example, task = session.example(request.example), session.forecaster.task
    whole = session.prediction(request.example)
    truth = example.target[0]
    columns: list[tuple[Variable, np.ndarray]] = []
    for number, (name, units) in enumerate(zip(task.outputs, task.units, strict=True)):
        parts = {"truth": truth, "predicted": whole, "error": whole - truth}
        if request.ablation != Ablation():
            parts["ablated"] = session.prediction(request.example, request.ablation)
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
    if request.ablation.sites:
        is_off = np.isin(np.arange(len(truth)), sorted(request.ablation.sites))
        columns.append((Variable("is_off", "1"), is_off.astype(np.float32)))
    is_known = example.weights[0].numpy() > 0
    rows = np.stack([np.where(is_known, values, np.nan) for _, values in columns], -1)
    variables = [variable for variable, _ in columns]
    geometry = session.plane(request.example).geometry
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "view.nc"
        member = session.members[request.example]
        if isinstance(member, TimeSlice) and isinstance(data, Trajectories):
            number = member.last if task.lead == 0 else member.target
            times = data.time[number : number + 1]
            write_forecast(
                path, rows[None, None], geometry, variables, times, data.time_units, data.origin
            )
        else:
            write_forecast(path, rows[None], geometry, variables)
        with netcdf4.Dataset(path, "a") as file:
            file.setncatts(_attributes(session, request))
        return path.read_bytes()


def _attributes(session: Session, request: AblationRequest) -> dict[str, str]:
    """Returns what the file is of; parts both in words and as JSON, as a request would name them."""
    off = request.ablation
    parts = {
        "modes": sorted(map(list, off.modes)),
        "layers": sorted(off.layers),
        "num_sites": len(off.sites),
    }
    return {
        "run": session.name,
        "model": session.model_name,
        "example": f"{request.example} of the test split of {session.data.source.name}",
        "ablation": ablation_in_words(session, off),
        "ablation_json": json.dumps(parts),
    }


def ablation_in_words(session: Session, ablation: Ablation) -> str:
    """Returns the parts that are off: layers and modes count from 1, waves by their numbers."""
    if ablation == Ablation():
        return "nothing is off"
    parts = [f"layer {layer + 1}" for layer in sorted(ablation.layers)]
    for layer in sorted({layer for layer, _ in ablation.modes}):
        names = ", ".join(mode_name(session, mode) for mode in ablation.modes_in(layer))
        parts.append(f"layer {layer + 1}: {names}")
    if ablation.sites:
        parts.append(f"{len(ablation.sites)} sites, where is_off is 1")
    return f"off, in the variables that end in _ablated: {'; '.join(parts)}"


def mode_name(session: Session, mode: int) -> str:
    """Returns a mode as the page names it: a wave by its numbers, or a mode of a head."""
    model = session.operator
    if model.waves is not None:
        numbers = torch.cartesian_prod(*model.waves.numbers).reshape(model.num_modes, -1)
        return f"wave ({', '.join(str(int(number)) for number in numbers[mode])})"
    head, number = divmod(mode, model.num_modes // model.config.num_heads)
    return f"head {head + 1}, mode {number + 1}"
