"""By how much do fits of the same frame differ? Errors and alignments of Gaussians that are fitted again.

    python benchmarks/represent_repeats.py --files FOLDER

The same code on the same values with as many threads gives the same Gaussians, bit by bit. But the
loss has many minima, and another order of additions leads to another one. Here the values are
changed by rounding alone (1e-12 of their spread, drawn at random), and everything is fitted anew.
"""

from pathlib import Path

import numpy as np
import torch
import tyro
from represent import RESULTS, at_sites, error, fitted, from_file, represented

from gpo.atomic_files import write_text
from gpo_bench.protocol import describe_machine
from gpo_mixture.represented import describe_mixtures

COUNT = 100
ROUNDING = 1e-12
HEAD = (
    "| data | error | lowest to highest | alignment | lowest to highest | its null |\n|"
    + "---|" * 6
)


def main(files: Path, out: Path = RESULTS, num_repeats: int = 4) -> None:
    """Makes the table.

    Args:
        files: Folder of the real files.
        out: Folder for the table.
        num_repeats: Fits of values that differ by rounding.
    """
    torch.set_num_threads(1)
    cases = [from_file("ERA5 2 m temperature, UK", files / "era5" / "era5-2mt-2019-03-uk.grib")]
    rows = []
    for case in cases:
        errors, alignments, band = [], [], ""
        for repeat in range(num_repeats + 1):
            noise = np.random.default_rng(repeat).normal(size=case.tested.shape)
            size = ROUNDING * np.nanstd(case.tested) if repeat else 0.0
            frames = case.tested + size * noise
            made = [fitted(case, values, COUNT) for values in frames]
            pairs = list(zip(made, case.tested, strict=True))
            errors.append(np.mean([error(at_sites(one, case.geometry), values, case.geometry)
                                   for one, values in pairs]))  # fmt: skip
            fields = [represented(case, one, values) for one, values in pairs]
            told = describe_mixtures(fields, np.random.default_rng(0))["alignment"]
            alignments.append(told["value"])
            band = band or f"{told['low']:+.2f} to {told['high']:+.2f}"
        rows.append(
            f"| {case.name} | {errors[0]:.4g} | {min(errors):.4g} to {max(errors):.4g} | "
            f"{alignments[0]:+.2f} | {min(alignments):+.2f} to {max(alignments):+.2f} | {band} |"
        )
        print(rows[-1], flush=True)
    meaning = (
        f"{COUNT} Gaussians, two frames: error and alignment of the fit, and the range of "
        f"{num_repeats} more fits of values that differ by rounding ({ROUNDING:g} of their spread)."
    )
    lines = ["### By how much do fits differ?", "", meaning, "", HEAD, *rows, ""]
    lines += describe_machine("python benchmarks/represent_repeats.py --files FOLDER")
    write_text(out / "repeats.md", "\n".join(lines) + "\n")


if __name__ == "__main__":
    tyro.cli(main)
