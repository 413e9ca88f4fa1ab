"""Sensitivity of a fit to rounding: the range of errors and alignments over repeated fits.

    python benchmarks/represent_repeats.py --files FOLDER

The same code with the same values and number of threads gives the same Gaussians bit by bit. But the
loss has many minima, and another order of additions can lead to another of them. Here each fit is
repeated after random perturbations of the values at the level of rounding (1e-12 of their spread).
"""

from pathlib import Path

import numpy as np
import torch
import tyro
from represent import RESULTS, fit_frame, from_file, mixture_errors, represented

from gpo.atomic_files import write_text
from gpo_bench.protocol import describe_machine
from gpo_mixture.structure import describe_structure

COUNT = 100
PERTURBATION = 1e-12
HEAD = (
    "| data | error | range of errors | alignment | range of alignments | null band |\n|"
    + "---|" * 6
)


def main(files: Path, out: Path = RESULTS, num_repeats: int = 4) -> None:
    """Computes and writes the table.

    Args:
        files: Folder of the real data sets.
        out: Folder for the table.
        num_repeats: Number of fits of perturbed values.
    """
    torch.set_num_threads(1)
    case = from_file("ERA5 2 m temperature, UK", files / "era5" / "era5-2mt-2019-03-uk.grib")
    errors, alignments = [], []
    for repeat in range(num_repeats + 1):
        noise = np.random.default_rng(repeat).normal(size=case.test.shape)
        size = PERTURBATION * np.nanstd(case.test) if repeat else 0.0
        mixtures = [fit_frame(case, values, COUNT) for values in case.test + size * noise]
        errors.append(np.mean(mixture_errors(case, mixtures)))
        pairs = zip(mixtures, case.test, strict=True)
        fields = [represented(case, mixture, values) for mixture, values in pairs]
        alignments.append(describe_structure(fields, np.random.default_rng(0))["alignment"])
    values = [alignment["value"] for alignment in alignments]
    row = (
        f"| {case.name} | {errors[0]:.4g} | {min(errors):.4g} to {max(errors):.4g} | "
        f"{values[0]:+.2f} | {min(values):+.2f} to {max(values):+.2f} | "
        f"{alignments[0]['low']:+.2f} to {alignments[0]['high']:+.2f} |"
    )
    print(row, flush=True)
    meaning = (
        f"{COUNT} Gaussians, two frames: error and alignment of the fit, and their range over it and "
        f"{num_repeats} fits of values perturbed at the level of rounding ({PERTURBATION:g} of their spread)."
    )
    lines = ["### How sensitive are fits to rounding?", "", meaning, "", HEAD, row, ""]
    lines += describe_machine("python benchmarks/represent_repeats.py --files FOLDER")
    write_text(out / "repeats.md", "\n".join(lines) + "\n")


if __name__ == "__main__":
    tyro.cli(main)
