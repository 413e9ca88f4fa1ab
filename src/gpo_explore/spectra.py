"""Error spectra: variance of truth, prediction, error and persistence by wavenumber."""

import numpy as np

from gpo.evaluation.spectrum import NoSpectrumError, spectra, spectral_errors
from gpo.model.ablation import Ablation
from gpo_explore.arrays import Packet
from gpo_explore.requests import VariableRequest
from gpo_explore.session import Session


def spectrum(session: Session, request: VariableRequest) -> Packet:
    """Returns the variance by wavenumber, or by degree on a sphere; else the `reason` for none.

    With an ablation, the prediction is the ablated one, and `whole` is the error of the full model.
    """
    task, example = session.forecaster.task, session.example(request.example)
    request.check(len(task.outputs))
    geometry = session.plane(request.example).geometry
    if not bool((example.weights[0] > 0).all()):
        return Packet({}, {"reason": "masked sites"})

    def column(values: np.ndarray) -> np.ndarray:
        return values[None, :, request.variable].astype(np.float64)

    truth = column(example.target[0].numpy())
    predicted = column(session.prediction(request.example, request.ablation).numpy())
    fields = {"truth": truth, "predicted": predicted, "error": predicted - truth}
    if request.ablation != Ablation():
        fields["whole"] = column(session.prediction(request.example).numpy()) - truth
    if task.lead > 0:
        fields["persistence"] = column(example.fields[0, -1].numpy()) - truth
    try:
        by_field = {name: spectra(field, geometry) for name, field in fields.items()}
        bands = _bands(truth, predicted, session, request)
    except NoSpectrumError as error:
        return Packet({}, {"reason": str(error)})
    # Wavenumber zero, the mean, is not on a logarithmic axis.
    arrays = {name: spectrum.power[1:] for name, spectrum in by_field.items()}
    arrays["wavenumbers"] = by_field["truth"].wavenumbers[1:]
    return Packet(arrays, {"label": by_field["truth"].label, "bands": bands})


def _bands(
    truth: np.ndarray, predicted: np.ndarray, session: Session, request: VariableRequest
) -> dict[str, float] | None:
    """Returns relative errors at low, middle and high wavenumbers; None if there are too few."""
    try:
        return spectral_errors(truth, predicted, session.plane(request.example).geometry)
    except NoSpectrumError:
        return None
