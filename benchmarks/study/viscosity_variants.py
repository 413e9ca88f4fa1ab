"""Why scales of particles imply the viscosity of the data, or not: variants of model and training.

    python benchmarks/study/viscosity_variants.py FOLDER --variants default one fast-scales num_waves=3

Models are trained as in `benchmarks/viscosity.py`, with variants of `gaussians.py`. Beside what scales
imply, a row has the viscosity that they *supply*: the prediction minus that with scales at the floor of the
lattice, regressed on the Laplacian of the target times the time step. Rows are appended to `--out`.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from gaussians import BUILD, parsed
from tyro.conf import Positional, arg

from gpo import open_run
from gpo.data.splits import evenly
from gpo.interpretation.batches import make_batches
from gpo.interpretation.diffusion import learned_scales, replaced_scales, scales_at_floor
from gpo.model import transport
from gpo.model.ablation import Ablation
from gpo.model.layer import Parts

sys.path.append(str(Path(__file__).parents[1]))
from viscosity import MAX_EXAMPLES, Case, read_rows


def laplacian(field: torch.Tensor) -> torch.Tensor:
    """Returns the Laplacian of periodic fields, samples by rows by columns, on the unit square."""
    waves = 2 * torch.pi * torch.fft.fftfreq(field.shape[-1], 1 / field.shape[-1])
    squares = waves.square()[:, None] + waves.square()
    return -torch.fft.ifft2(squares * torch.fft.fft2(field.double())).real


def supplied(run: Path, time_step: float) -> float:
    """Returns the viscosity of what is lost where scales are at the floor of the lattice.

    The floor itself has a viscosity, by which the kernel at the floor is too wide already; it is not added.
    """
    opened = open_run(run)
    forecaster = opened.forecaster().eval()
    floor = Ablation(scaling=replaced_scales(scales_at_floor(learned_scales(forecaster))))
    products, squares = 0.0, 0.0
    for batch in make_batches(opened.data, evenly(opened.split.validation, MAX_EXAMPLES)):
        own, without = (batch.predicted(forecaster, change) for change in (Ablation(), floor))
        size = round(own.shape[1] ** 0.5)
        change = (own - without).double().reshape(-1, size, size)
        diffused = time_step * laplacian(batch.example.target.reshape(-1, size, size))
        products += float((change * diffused).sum())
        squares += float(diffused.square().sum())
    return products / squares


def main(
    folder: Positional[Annotated[Path, arg(metavar="FOLDER")]],
    /,
    variants: tuple[str, ...] = ("default", "one"),
    viscosities: tuple[float, ...] = (1e-4, 4e-4, 2e-3),
    seeds: tuple[int, ...] = (0,),
    flags: Sequence[str] = ("--learning-rate=6e-3", "--steps=600"),
    out: Path = Path("benchmarks/results/study/viscosity_variants.jsonl"),
) -> None:
    """Makes all rows that are missing, and prints them."""
    out.parent.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        for viscosity in viscosities:
            for name in variants:
                case = Case(viscosity, 1, seed)
                key = {"variant": name, **vars(case)}
                row = next((one for one in read_rows(out) if key.items() <= one.items()), None)
                if row is None:
                    row = {**key, **measure(case, name, folder, flags)}
                    with out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
                print(viscosity, name, seed, {k: round(v, 2) for k, v in row["ratio"].items()},
                      {k: round(v, 5) for k, v in row["errors"].items()},
                      f"supplied {row['supplied'] / viscosity:.2f}", flush=True)  # fmt: skip


def measure(case: Case, name: str, folder: Path, flags: Sequence[str]) -> dict[str, Any]:
    """Trains a variant and reads its particles."""
    settings, change = parsed(name)

    def build(*arguments: Any) -> Parts:
        parts = BUILD(*arguments)
        change(parts)
        return parts

    transport.build_parts = build
    own = [f"--{key.replace('_', '-')}={value}" for key, value in settings.items()]
    run = case.train(folder, (*flags, *own), folder / name)
    row = case.row(run)
    row.pop("particles")
    return {**row, "supplied": supplied(run, row["time_step"])}


if __name__ == "__main__":
    torch.set_num_threads(1)
    tyro.cli(main)
