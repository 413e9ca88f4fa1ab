"""References fitted to the training split of some data, without a model."""

import torch

from gpo.forecast.references import ReferenceInputs
from gpo.forecast.statistics import training_statistics
from gpo.forecast.task import Task


def inputs_of(data, samples, *, history=1, lead=1):
    """What references are fitted to."""
    inputs, outputs, sizes = training_statistics(data, samples)
    names = [tuple(variable.name for variable in side) for side in (data.inputs, data.outputs)]
    task = Task(
        *names, ("",) * len(outputs.mean), history, lead if data.has_time else 0,
        "increment" if data.has_time else "state", tuple(inputs.mean), tuple(inputs.std),
        tuple(outputs.mean), tuple(outputs.std), tuple(sizes),
    )  # fmt: skip
    means = {"input_mean": torch.tensor(inputs.mean), "output_mean": torch.tensor(outputs.mean)}
    return ReferenceInputs(task=task, data=data, samples=samples, **means)
