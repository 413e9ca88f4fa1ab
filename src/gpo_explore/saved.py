"""NetCDF files of an example, with the run, the example and the ablation in their attributes."""

import json
import tempfile
from pathlib import Path

import numpy as np
import torch

from gpo.data.dataset import Variable
from gpo.data.writers.netcdf import write_forecast
from gpo.model.ablation import Ablation
from gpo.optional import require
from gpo_explore.requests import AblationRequest
from gpo_explore.session import Session


def netcdf(session: Session, request: AblationRequest) -> bytes:
    """Returns input, truth, prediction and error of an example as a NetCDF file; NaN at masked sites.

    Global attributes name the run, the example and the ablated parts. If sites are ablated, the
    variable `is_off` is one at these sites.
    """
    netcdf4 = require("netCDF4", "data", "Writing NetCDF")
    example, task = session.example(request.example), session.forecaster.task
    whole = session.prediction(request.example)
    truth = example.target[0]
    columns: list[tuple[Variable, np.ndarray]] = []
    for number, (name, units) in enumerate(zip(task.outputs, task.units, strict=True)):
        fields = {"truth": truth, "predicted": whole, "error": whole - truth}
        if request.ablation != Ablation():
            fields["ablated"] = session.prediction(request.example, request.ablation)
        columns += [
            (Variable(f"{name}_{kind}", units), values[:, number].numpy())
            for kind, values in fields.items()
        ]
    data = session.data
    columns += [
        (Variable(f"{variable.name}_given", variable.units), example.fields[0, -1, :, n].numpy())
        for n, variable in enumerate(data.inputs)
    ]
    if request.ablation.sites:
        is_off = np.isin(np.arange(len(truth)), sorted(request.ablation.sites))
        columns.append((Variable("is_off", "1"), is_off.astype(np.float32)))
    is_active = example.weights[0].numpy() > 0
    rows = np.stack([np.where(is_active, values, np.nan) for _, values in columns], -1)
    variables = [variable for variable, _ in columns]
    geometry = session.plane(request.example).geometry
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "view.nc"
        sample = session.samples[request.example]
        if sample.lead > 0:
            number = sample.last if session.reconstructs else sample.target
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
    """Returns the global attributes; ablated parts both as text and as the JSON of a request."""
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
        "ablation": describe_ablation(session, off),
        "ablation_json": json.dumps(parts),
    }


def describe_ablation(session: Session, ablation: Ablation) -> str:
    """Returns the ablated parts as text: layers and modes from 1, waves by their wavenumbers."""
    if ablation == Ablation():
        return "none"
    parts = [f"layer {layer + 1}" for layer in sorted(ablation.layers)]
    for layer in sorted({layer for layer, _ in ablation.modes}):
        names = ", ".join(mode_name(session, mode) for mode in ablation.modes_in(layer))
        parts.append(f"layer {layer + 1}: {names}")
    if ablation.sites:
        parts.append(f"{len(ablation.sites)} sites, where is_off is 1")
    return f"ablated in the variables *_ablated: {'; '.join(parts)}"


def mode_name(session: Session, mode: int) -> str:
    """Returns the name of a mode on the page: a wave by its wavenumbers, or a mode of a head."""
    model = session.operator
    if model.waves is not None:
        numbers = torch.cartesian_prod(*model.waves.numbers).reshape(model.num_modes, -1)
        return f"wave ({', '.join(str(int(number)) for number in numbers[mode])})"
    head, number = divmod(mode, model.num_modes // model.config.num_heads)
    return f"head {head + 1}, mode {number + 1}"
