"""Fine-tuning: initialises a model with the matching parameters of a trained run.

Parameters are matched by name and shape; input and output channels by variable, and filters by wave
number, so that the new data may have another resolution or region, or more variables.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from gpo.forecast.forecaster import Forecaster, Task
from gpo.model.mode_filter import ModeFilter
from gpo.settings_files import CheckpointError
from gpo.training.run_folder import Run

MAX_NAMES = 6
"""Maximum number of parameter names in a message."""


FIELD = ("lift.", "decoder.")
"""Prefixes of the parameters of encoder and decoder."""


def freeze_field(forecaster: Forecaster) -> None:
    """Takes encoder and decoder out of training: only the layers between them learn."""
    for name, parameter in forecaster.model.named_parameters():
        if name.startswith(FIELD):
            parameter.requires_grad_(False)


@torch.no_grad()
def initialise_from(forecaster: Forecaster, folder: Path, *, required: tuple[str, ...] = ()) -> str:
    """Copies all matching parameters of a trained run; returns a summary.

    Args:
        forecaster: The new model.
        folder: The run folder.
        required: Prefixes of parameters that the run must have whole.
    """
    origin = Forecaster.load(Run(folder).trained_model())
    source, target = origin.model.state_dict(), forecaster.model.state_dict()
    filters = _filters(origin), _filters(forecaster)
    whole, parts, left = [], [], []
    for name, value in target.items():
        old = source.get(name)
        if old is not None and _is_the_same(name, value, old, origin, forecaster, filters):
            value.copy_(old)
            whole.append(name)
        elif old is not None and _copy_part(name, value, old, origin, forecaster, filters):
            parts.append(name)
        else:
            left.append(name)
    if not whole and not parts:
        raise CheckpointError(
            f"{folder}: no parameter of its {origin.model.name} matches the new "
            f"{forecaster.model.name}. Use the same --model and sizes."
        )
    missing = [name for name in (*parts, *left) if name.startswith(required)] if required else []
    if missing:
        raise CheckpointError(
            f"{folder}: its {origin.model.name} must have the frozen parameters {_listed(missing)} "
            "with the same shape and meaning. Use the same data, --model and sizes."
        )
    message = f"initialised {len(whole)} of {len(target)} parameters from {folder}"
    if parts:
        message += f", and {len(parts)} in part ({_listed(parts)})"
    return message + (f"; {len(left)} are new ({_listed(left)})" if left else "")


def _filters(forecaster: Forecaster) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of all mode filters by the names of their parameters."""
    named = forecaster.model.named_modules()
    return {f"{name}.packets": part.shape for name, part in named if isinstance(part, ModeFilter)}


def _is_the_same(
    name: str,
    value: Tensor,
    old: Tensor,
    origin: Forecaster,
    forecaster: Forecaster,
    filters: tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]],
) -> bool:
    """Returns whether a parameter has the same shape, and its entries the same meaning."""
    if old.shape != value.shape or filters[0].get(name) != filters[1].get(name):
        return False
    if name == "lift.linear.weight":
        return _channels(origin.task) == _channels(forecaster.task)
    if name.endswith("features.frequencies"):
        # Frequencies along periodic axes are integers.
        is_periodic = (value == value.round()).all(0)
        return bool((old == old.round())[:, is_periodic].all())
    if name.rpartition(".")[0] == _last_linear(forecaster.model):
        return origin.task.outputs == forecaster.task.outputs
    return True


def _copy_part(
    name: str,
    value: Tensor,
    old: Tensor,
    origin: Forecaster,
    forecaster: Forecaster,
    filters: tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]],
) -> bool:
    """Copies the matching part of a parameter of another shape; returns whether there is one."""
    if name in filters[0] and name in filters[1]:
        return _copy_waves(value, old, filters[0][name], filters[1][name])
    layer = name.rpartition(".")[0]
    if name == "lift.linear.weight":
        old_keys, keys = _channels(origin.task), _channels(forecaster.task)
        num_others = value.shape[1] - len(keys)
        if old.shape[1] - len(old_keys) != num_others or len(old) != len(value):
            return False
        # Position features follow the variables.
        value[:, len(keys) :] = old[:, len(old_keys) :]
        return _copy_rows(value.T, old.T, old_keys, keys)
    is_last = layer == _last_linear(forecaster.model)
    if is_last and old.shape[1:] == value.shape[1:]:
        return _copy_rows(value, old, origin.task.outputs, forecaster.task.outputs)
    return False


def _copy_rows(
    value: Tensor, old: Tensor, old_keys: Sequence[object], keys: Sequence[object]
) -> bool:
    """Copies the rows of common keys; the others are scaled down, to disturb little at first."""
    for row, key in enumerate(keys):
        if key in old_keys:
            value[row] = old[old_keys.index(key)]
        else:
            value[row] *= 0.1
    return any(key in old_keys for key in keys)


def _copy_waves(
    value: Tensor, old: Tensor, old_shape: tuple[int, ...], shape: tuple[int, ...]
) -> bool:
    """Copies common wave numbers: -K to K along all axes but the last, which has 0 to K."""
    if value.shape[:2] != old.shape[:2] or len(old_shape) != len(shape):
        return False
    target, source = [slice(None)] * 2, [slice(None)] * 2
    for axis, (before, now) in enumerate(zip(old_shape, shape, strict=True)):
        count = min(before, now)
        is_last = axis == len(old_shape) - 1
        target.append(_centered(now, count, is_last))
        source.append(_centered(before, count, is_last))
    whole = torch.zeros_like(value).unflatten(2, shape)
    whole[tuple(target)] = old.unflatten(2, old_shape)[tuple(source)]
    value.copy_(whole.flatten(2))
    return True


def _centered(size: int, count: int, is_last: bool) -> slice:
    start = 0 if is_last else (size - count) // 2
    return slice(start, start + count)


def _channels(task: Task) -> list[tuple[int, str]]:
    """Returns the age, in frames, and the variable of every input channel."""
    ages = range(task.history - 1, -1, -1)
    return [(age, name) for age in ages for name in task.inputs]


def _last_linear(model: nn.Module) -> str:
    """Returns the name of the output layer of an operator, empty for other models."""
    named = [name for name, part in model.named_modules() if isinstance(part, nn.Linear)]
    decoders = [name for name in named if "decoder." in name]
    return decoders[-1] if decoders else ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more
