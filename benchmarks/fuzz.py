"""What becomes of damaged files: every layout and container, cut, flipped, zeroed, swapped, torn.

    python -m benchmarks.fuzz

`tests/contracts/fuzz.py` has the ways of damage and the outcomes. Every seed damages 2,600 files.
Files are refused or read as the very data that they held; anything else is listed in
`findings.json`, counted by what explains it, and an exit code of 1 where nothing does. Where it is
said that numbers changed in place, the bytes are looked up: `python -m benchmarks.fuzz --seeds`
does that alone, for all that was found before.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro

from gpo_bench.protocol import describe_machine
from tests.contracts.fuzz import (
    DIFFERENCES,
    GOOD,
    MET,
    REASONS,
    SAME_LENGTH,
    Damage,
    Finding,
    IntactFile,
    fuzz,
    whole_files,
)

RESULTS = Path(__file__).parent / "results" / "fuzz"
OUTCOMES = (*GOOD, *reversed(DIFFERENCES), "error", "memory", "hang", "crash")
WAYS = (*dict.fromkeys(Damage.NAMES), "lost file")


def stored(findings: Sequence[Finding]) -> dict[str, Any]:
    """Returns what is kept of a seed: counts by layout, and every exception by its number."""
    layouts: dict[str, Any] = {}
    for one in findings:
        kept = layouts.setdefault(one.layout, {"counts": Counter(), "exceptions": []})
        kept["counts"][f"{one.damage}: {one.outcome}"] += 1
        if one.outcome not in GOOD:
            kept["exceptions"].append([one.number, one.damage, one.file, one.outcome])
    return layouts


def look_up(seeds: dict[str, Any], victims: Sequence[IntactFile], work: Path) -> None:
    """Adds to every exception that numbers explain what its damage met, by the bytes."""
    by_layout = {victim.layout: victim for victim in victims}
    for seed, layouts in seeds.items():
        for layout, kept in layouts.items():
            for exception in kept["exceptions"]:
                finding = Finding(layout, *exception[:4])
                if finding.reason == "numbers":
                    exception[4:] = [by_layout[layout].met(finding, int(seed), work)]


def exceptions(seeds: dict[str, Any]) -> list[Finding]:
    """Returns all that is neither refused nor the same."""
    return [
        Finding(layout, *exception[:4], met=(*exception, "")[4])
        for layouts in seeds.values()
        for layout, kept in layouts.items()
        for exception in kept["exceptions"]
    ]


def table(head: str, rows: Sequence[str], columns: Sequence[str], counts: Counter) -> str:
    """Returns counts by row and column, with a row of sums, as Markdown."""
    lines = [f"| {head} | files | {' | '.join(columns)} |", "|" + "---|" * (len(columns) + 2)]
    for row in [*rows, "all"]:
        cells = [sum(counts[one, column] for one in (rows if row == "all" else [row])) for column in columns]  # fmt: skip
        shown = [f"{cell:,}" if cell else "" for cell in (sum(cells), *cells)]
        lines.append(f"| {row} | {' | '.join(shown)} |")
    return "\n".join(lines)


def describe(seeds: dict[str, Any]) -> str:
    """Returns all tables, and what explains the exceptions."""
    by_layout, by_way = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for layouts in seeds.values():
        for layout, kept in layouts.items():
            for name, count in kept["counts"].items():
                way, outcome = name.split(": ")
                by_layout[layout, outcome] += count
                by_way[way, outcome] += count
    names = dict.fromkeys(layout for layouts in seeds.values() for layout in layouts)
    reasons = Counter(one.reason for one in exceptions(seeds))
    explained = [f"- {name}, {reasons[name]:,} files: {why}" for name, why in REASONS.items()]
    by_reason = Counter((one.layout, str(one.reason)) for one in exceptions(seeds))
    listed = list(dict.fromkeys(layout for layout, _ in by_reason))
    looked_up = [one for one in exceptions(seeds) if one.met]
    met = Counter(one.met for one in looked_up)
    by_met = Counter((one.layout, one.met) for one in looked_up)
    told = [f"- {name}, {met[name]:,} files: {what}." for name, what in MET.items()]
    declared = [
        f"{layout} {number} of seed {seed}"
        for seed, layouts in seeds.items()
        for layout, kept in layouts.items()
        for number, *_, found in kept["exceptions"]
        if found == "declared"
    ]
    return "\n\n".join([
        table("layout", list(names), OUTCOMES, by_layout),
        f"By the way of damage; {', '.join(SAME_LENGTH)} leave a file as long as it was:",
        table("damage", WAYS, OUTCOMES, by_way),
        f"Exceptions by what explains them; without an explanation: {reasons[None]}. All are listed in "
        "`findings.json` (number, damage, file, outcome, what it met), and come again from their seed.",
        table("layout", listed, tuple(REASONS), by_reason),
        "\n".join(explained),
        f"What met the {len(looked_up):,} of these that left the length of a file, by the offsets of all "
        "stored numbers:",
        table("layout", list(dict.fromkeys(one.layout for one in looked_up)), tuple(MET), by_met),
        "\n".join(told),
        f"Declared: {', '.join(declared)}.",
    ])  # fmt: skip


def main(seeds: tuple[int, ...] = (0, 1, 2, 3), count: int = 2600) -> None:
    """Damages, reads and writes the tables.

    Args:
        seeds: Which damage; findings of other seeds stay in the tables.
        count: Files of every seed.
    """
    place = RESULTS / "findings.json"
    RESULTS.mkdir(parents=True, exist_ok=True)
    known = json.loads(place.read_text()) if place.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "damaged"
        work.mkdir()
        # Once: what these files hold comes from generators that go on.
        victims = whole_files(Path(folder) / "whole")
        for seed in seeds:
            found = fuzz(victims, count, seed, work)
            known[str(seed)] = stored(found)
            for one in found:
                if one.outcome not in GOOD and one.reason is None:
                    print(one)
        look_up(known, victims, work)
    place.write_text(written(dict(sorted(known.items()))))
    text = "\n\n".join(["### Damaged files", describe(known), *describe_machine("python -m benchmarks.fuzz")])  # fmt: skip
    (RESULTS / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    if any(one.reason is None for one in exceptions(known)):
        raise SystemExit(1)


def written(known: dict[str, Any]) -> str:
    """Returns JSON with a line for every layout of every seed."""
    seeds = []
    for seed, layouts in known.items():
        lines = [f"{json.dumps(layout)}: {json.dumps(kept)}" for layout, kept in layouts.items()]
        seeds.append(f"{json.dumps(seed)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(seeds) + "\n}\n"


if __name__ == "__main__":
    tyro.cli(main)
