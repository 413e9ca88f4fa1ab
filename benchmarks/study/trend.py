"""What a damped trend alone leaves of the error of persistence: no model, one number per variable.

    python benchmarks/study/trend.py FILE [FILE ...]

The part of the last change that goes on is fitted to the training split; the error is taken on the
validation split, over all of its examples with a history of two frames.
"""

from pathlib import Path

import numpy as np
import tyro
from tyro.conf import Positional

from gpo import open_data
from gpo.data.splits import split_time_slices
from gpo.training.config import RunConfig
from gpo.training.setup import new_forecaster


def main(files: Positional[list[Path]]) -> None:
    """Prints a row per variable.

    Args:
        files: Time series, as `gpo run --data` takes them.
    """
    print(
        "| file | variable | trend | change / std | validation / persistence |\n|---|---|---|---|---|"
    )
    for path in files:
        data = open_data(path)
        if not data.has_time:
            raise ValueError(f"{path} holds static maps, in which nothing changes.")
        split = split_time_slices(data, history=2)
        config = RunConfig.of(data=str(path), history=2, blend=False)
        task = new_forecaster(data, split, config).task
        trend = np.array(task.trend or np.zeros(len(task.outputs)))
        left = whole = np.zeros(len(task.outputs))
        for window in split.validation:
            before, last, target = (
                data.frames(window.sample, slice(n, n + 1))[0]
                for n in (*window.inputs, window.target)
            )
            weights = data.geometry(window.sample).weights
            residual = target - last - trend * (last - before)
            left = left + weights @ np.nan_to_num(residual) ** 2
            whole = whole + weights @ np.nan_to_num(target - last) ** 2
        ratio = np.sqrt(left / whole)
        for number, variable in enumerate(data.variables):
            row = trend[number], task.increment_std[number], ratio[number]
            shown = " | ".join(f"{value:.3g}" for value in row)
            print(f"| {path.name} | {variable.name} | {shown} |", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
