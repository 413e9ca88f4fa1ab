"""The error by scale: spectra of truth, prediction, error and persistence of one example."""

import numpy as np

from gpo.data.dataset import Trajectories
from gpo.evaluation.spectrum import NoSpectrumError, spectra, spectral_errors
from gpo.model.ablation import Ablation
from gpo_explore.arrays import Packet
from gpo_explore.requests import VariableRequest
from gpo_explore.session import Session


def spectrum(session: Session, request: VariableRequest) -> Packet:
    """Returns the variance by wave number, or by degree; where there is none, `reason` says why.

    With parts off, the prediction is that without them, and `whole` has the error of all of it.
    """
    task, example = session.forecaster.task, session.example(request.example)
    request.check(len(task.outputs))
    geometry = session.plane(request.example).geometry
    if not bool((example.weights[0] > 0).all()):
        return Packet({}, {"reason": "masked sites"})

    def column(rows: np.ndarray) -> np.ndarray:
        return rows[None, :, request.variable].astype(np.float64)

    truth = column(example.target[0].numpy())
    predicted = column(session.prediction(request.example, request.ablation).numpy())
    fields = {"truth": truth, "predicted": predicted, "error": predicted - truth}
    if request.ablation != Ablation():
        fields["whole"] = column(session.prediction(request.example).numpy()) - truth
    if isinstance(session.data, Trajectories) and task.lead > 0:
        fields["persistence"] = column(example.fields[0, -1].numpy()) - truth
    try:
        found = {name: spectra(field, geometry) for name, field in fields.items()}
        bands = _bands(truth, predicted, session, request)
    except NoSpectrumError as error:
        return Packet({}, {"reason": str(error)})
    # The mean has no wave number on a logarithmic axis.
    arrays = {name: one.power[1:] for name, one in found.items()}
    arrays["wavenumbers"] = found["truth"].wavenumbers[1:]
    return Packet(arrays, {"label": found["truth"].label, "bands": bands})


def _bands(
    truth: np.ndarray, predicted: np.ndarray, session: Session, request: VariableRequest
) -> dict[str, float] | None:
    """Returns relative errors at low, middle and high wave numbers; None where there are too few."""
    try:
        return spectral_errors(truth, predicted, session.plane(request.example).geometry)
    except NoSpectrumError:
        return None
