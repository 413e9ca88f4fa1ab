"""What becomes of damaged files: every layout and container, cut, flipped, zeroed, swapped, torn.

    python -m benchmarks.fuzz

`tests/contracts/fuzz.py` has the ways of damage and the outcomes. Every seed damages 2,600 files.
Files are refused or read as the very data that they held; anything else is in the table, by what
differs, and explained below it.
"""

import json
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import tyro

from gpo.bench.protocol import describe_machine
from tests.contracts.fuzz import DIFFERENCES, GOOD, Finding, fuzz, whole_files

RESULTS = Path(__file__).parent / "results" / "fuzz"
COLUMNS = (*GOOD, *reversed(DIFFERENCES), "error", "memory", "hang", "crash")
EXPLAINED = (
    "values, sites: a number was changed where the container keeps numbers without a checksum: HDF5 "
    "and NetCDF 4 without fletcher32, classic NetCDF, `.npy`, MATLAB 5 without compression, the "
    "packed numbers of GRIB, Zarr with blosc or without a codec that checks. No reader can see it. "
    "Sites count as changed, too, where the text of an attribute (units, say) was: JSON of Zarr and "
    "headers of HDF5 and classic NetCDF have no checksum either. Rows of containers with checksums "
    "have none of it but for attributes.",
    "names, shape: the name of a variable or the length of an axis was changed in a header without a "
    "checksum, to another that fits.",
    "hang: one NetCDF 4 file whose blocks were swapped (seed 2, stations, 43) kept its "
    "library busy for more than 20 s; the reading process was ended.",
    "shape also: a file that is lost from a folder of `.npy` files takes "
    "its variable with it, for nothing lists them.",
    "crash: HDF5, netCDF or ecCodes ended the process. The reading process is shared by all files, "
    "so memory that an earlier damaged file spoilt may end a later one. Readers run in this process: "
    "files of strangers belong into a container (SECURITY.md).",
)


def tabulate(findings: list[Finding], layouts: list[str]) -> str:
    """Returns how often every outcome came, by layout, as Markdown."""
    lines = [f"| layout | files | {' | '.join(COLUMNS)} |", "|" + "---|" * (len(COLUMNS) + 2)]
    for layout in [*layouts, "all"]:
        counts = Counter(one.outcome for one in findings if layout in ("all", one.layout))
        cells = (sum(counts.values()), *(counts[name] for name in COLUMNS))
        lines.append(f"| {layout} | {' | '.join(f'{cell:,}' if cell else '' for cell in cells)} |")
    return "\n".join(lines)


def main(seeds: tuple[int, ...] = (0, 1, 2, 3), count: int = 2600) -> None:
    """Damages, reads and writes the table.

    Args:
        seeds: Which damage; findings of other seeds stay in the table.
        count: Files of every seed.
    """
    stored = RESULTS / "findings.json"
    RESULTS.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder) / "damaged"
            work.mkdir()
            victims = whole_files(Path(folder) / "whole")
            found = fuzz(victims, count, seed, work)
        known = json.loads(stored.read_text()) if stored.exists() else {}
        known[str(seed)] = {
            "outcomes": [[one.layout, one.outcome] for one in found if one.outcome in GOOD],
            "exceptions": [
                {**asdict(one), "said": one.said[:300]} for one in found if one.outcome not in GOOD
            ],
        }
        stored.write_text(json.dumps(known) + "\n")
    findings = []
    for one in json.loads(stored.read_text()).values():
        findings += [Finding(layout, 0, "", "", outcome) for layout, outcome in one["outcomes"]]
        findings += [Finding(**exception) for exception in one["exceptions"]]
    table = tabulate(findings, [victim.layout for victim in victims])
    machine = describe_machine("python -m benchmarks.fuzz")
    text = "\n\n".join(["### Damaged files", table, *EXPLAINED, *machine])
    (RESULTS / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    tyro.cli(main)
