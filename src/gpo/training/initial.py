"""Fine-tuning: parameters of a trained run that a new model begins with, as far as they fit.

Parameters are matched by name and shape. Inputs and outputs of our operator are matched by the
names of variables, its filters by wave numbers, so that data of another resolution, region or
with more variables may follow.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from gpo.forecast.forecaster import Forecaster, Task
from gpo.model.mode_filter import ModeFilter
from gpo.settings_files import CheckpointError
from gpo.training.run_folder import Run

SHOWN = 6
"""Names of parameters that do not fit, of which so many are told."""


@torch.no_grad()
def begin_with(forecaster: Forecaster, folder: Path) -> str:
    """Takes over all that fits of a trained run, and returns in words what that is.

    Args:
        forecaster: A new model with its task.
        folder: The run folder.
    """
    origin = Forecaster.load(Run(folder).trained_model())
    source, target = _named(origin), _named(forecaster)
    filters = _filters(origin), _filters(forecaster)
    whole, parts, left = [], [], []
    for name, value in target.items():
        found = source.get(name)
        if found is not None and _is_the_same(name, value, found, origin, forecaster, filters):
            value.copy_(found)
            whole.append(name)
        elif found is not None and _take_part(name, value, found, origin, forecaster, filters):
            parts.append(name)
        else:
            left.append(name)
    if not whole and not parts:
        raise CheckpointError(
            f"{folder}: nothing of its {origin.model.name} fits a new "
            f"{forecaster.model.name}. Choose the same --model and sizes."
        )
    told = f"begins with {len(whole)} of {len(target)} parameters of {folder}"
    if parts:
        told += f", and with a part of {len(parts)} ({_listed(parts)})"
    return told + (f"; new are {len(left)} ({_listed(left)})" if left else "")


def _named(forecaster: Forecaster) -> dict[str, Tensor]:
    """Returns parameters and buffers by name."""
    return forecaster.model.state_dict()


def _filters(forecaster: Forecaster) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of all filters of modes by the names of their parameters."""
    named = forecaster.model.named_modules()
    return {f"{name}.packets": part.shape for name, part in named if isinstance(part, ModeFilter)}


def _is_the_same(
    name: str,
    value: Tensor,
    found: Tensor,
    origin: Forecaster,
    forecaster: Forecaster,
    filters: tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]],
) -> bool:
    """Returns whether a parameter has the same shape, and its entries the same meaning."""
    if found.shape != value.shape or filters[0].get(name) != filters[1].get(name):
        return False
    if name == "lift.linear.weight":
        return _channels(origin.task) == _channels(forecaster.task)
    if name.endswith("features.frequencies"):
        # Along an axis that closes on itself features have whole turns.
        is_closed = (value == value.round()).all(0)
        return bool((found == found.round())[:, is_closed].all())
    if name.rpartition(".")[0] == _last_linear(forecaster.model):
        return origin.task.outputs == forecaster.task.outputs
    return True


def _take_part(
    name: str,
    value: Tensor,
    found: Tensor,
    origin: Forecaster,
    forecaster: Forecaster,
    filters: tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]],
) -> bool:
    """Takes over the matching part of a parameter of another shape, where there is one."""
    if name in filters[0] and name in filters[1]:
        return _take_waves(value, found, filters[0][name], filters[1][name])
    layer = name.rpartition(".")[0]
    if name == "lift.linear.weight":
        old, new = _channels(origin.task), _channels(forecaster.task)
        rest = value.shape[1] - len(new)
        if found.shape[1] - len(old) != rest or len(found) != len(value):
            return False
        # Variables come first, features of the position follow.
        value[:, len(new) :] = found[:, len(old) :]
        return _take_rows(value.T, found.T, old, new)
    is_last = layer == _last_linear(forecaster.model)
    if is_last and found.shape[1:] == value.shape[1:]:
        return _take_rows(value, found, origin.task.outputs, forecaster.task.outputs)
    return False


def _take_rows(value: Tensor, found: Tensor, old: Sequence[object], new: Sequence[object]) -> bool:
    """Copies the rows of what both have; new ones begin small, so that they disturb little."""
    for row, key in enumerate(new):
        if key in old:
            value[row] = found[old.index(key)]
        else:
            value[row] *= 0.1
    return any(key in old for key in new)


def _take_waves(value: Tensor, found: Tensor, old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    """Copies what both have of wave numbers: from -K to K along all axes but the last, 0 to K."""
    if value.shape[:2] != found.shape[:2] or len(old) != len(new):
        return False
    mine, theirs = [slice(None)] * 2, [slice(None)] * 2
    for axis, (before, now) in enumerate(zip(old, new, strict=True)):
        count = min(before, now)
        is_last = axis == len(old) - 1
        mine.append(_centered(now, count, is_last))
        theirs.append(_centered(before, count, is_last))
    whole = torch.zeros_like(value).unflatten(2, new)
    whole[tuple(mine)] = found.unflatten(2, old)[tuple(theirs)]
    value.copy_(whole.flatten(2))
    return True


def _centered(size: int, count: int, is_last: bool) -> slice:
    start = 0 if is_last else (size - count) // 2
    return slice(start, start + count)


def _channels(task: Task) -> list[tuple[int, str]]:
    """Returns what every input channel is: how many frames ago, and which variable."""
    ages = range(task.history - 1, -1, -1)
    return [(age, name) for age in ages for name in task.inputs]


def _last_linear(model: nn.Module) -> str:
    """Returns the name of the layer that makes the outputs of our operator."""
    named = [name for name, part in model.named_modules() if isinstance(part, nn.Linear)]
    decoders = [name for name in named if "decoder." in name]
    return decoders[-1] if decoders else ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
