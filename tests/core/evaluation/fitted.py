"""References fitted to the training split of some data, without a model."""

import torch

from gpo.forecast.references import ReferenceInputs
from gpo.forecast.statistics import training_statistics
from gpo.forecast.task import Task


def inputs_of(data, samples, *, history=1, lead=1):
    """What references are fitted to."""
    inputs, outputs, sizes = training_statistics(data, samples)
    variables = tuple(variable.name for variable in getattr(data, "variables", ()))
    task = Task(
        variables or tuple(variable.name for variable in data.inputs),
        variables or tuple(variable.name for variable in data.outputs),
        ("",) * len(outputs.mean), history, lead if variables else 0,
        "increment" if variables else "state", tuple(inputs.mean), tuple(inputs.std),
        tuple(outputs.mean), tuple(outputs.std), tuple(sizes),
    )  # fmt: skip
    means = {"input_mean": torch.tensor(inputs.mean), "output_mean": torch.tensor(outputs.mean)}
    return ReferenceInputs(task=task, data=data, samples=samples, **means)
