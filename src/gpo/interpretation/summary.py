"""The dozen numbers of `interpret.json` that answer its questions, as lines of text."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpo.interpretation.interpretation import Interpretation

Row = tuple[str, str, str]
"""What is asked, the number, and what to see it beside."""


def summary(found: Interpretation) -> list[Row]:
    """Returns one row per question that could be answered."""
    return [*_structures(found.structures), *_windows(found.windows), *_causes(found.causes),
            *_stability(found.stability)]  # fmt: skip


def _structures(part: Mapping[str, Any]) -> Iterator[Row]:
    if "reason" in part:
        yield "particles", "-", part["reason"]
        return
    for particle, row in part["correlations"].items():
        for structure, entry in row.items():
            if "reason" not in entry:
                yield (
                    f"ρ of {particle} – {structure}",
                    f"{entry['value']:+.3f}",
                    _band(entry),
                )
    if "reason" not in part["alignment"]:
        entry = part["alignment"]
        yield "cos 2θ of long axis, gradient", f"{entry['value']:+.3f}", _band(entry)  # fmt: skip
    yield "own particles seen by a site", f"{part['basis_at_site']:.2g}", "0 to 1"
    for name, share in part["share_from_field"].items():
        if share is not None:
            yield f"{name} due to the field", f"{share:.1%}", "rest: place, number"


def _windows(part: Mapping[str, Any]) -> Iterator[Row]:
    if "reason" in part:
        yield "windows", "-", part["reason"]
    elif part["kind"] == "waves":
        modes = [layer["effective_modes"] for layer in part["layers"]]
        count = len(part["vectors"])
        yield "waves used, first, last layer", f"{modes[0]:.0f}, {modes[-1]:.0f}", f"of {count}"  # fmt: skip
        if "reason" not in part["gram"]:
            unseen = part["gram"]["measured"]["share_hardly_seen"]
            yield "functions sites hardly see", f"{unseen:.1%}", "0 %"
    else:
        layers = part["layers"]
        modes = np.mean([layer["effective_modes"] for layer in layers])
        extent = np.mean([layer["extent"] for layer in layers])
        smallest = np.mean([layer["gram_smallest"] for layer in layers])
        yield "effective number of modes per head", f"{modes:.1f}", f"of {len(layers[0]['coverage'][0])}"  # fmt: skip
        yield "extent of a window", f"{extent:.2f}", "1 everywhere"
        yield "smallest singular value of the Gram matrix", f"{smallest:.2g}", "1"


def _causes(part: Mapping[str, Any]) -> Iterator[Row]:
    if "reason" in part:
        yield "causes", "-", part["reason"]
        return
    yield "change without any particle", f"{part['particles']['all']['relative_l2']:.2g}", f"error {part['error']:.2g}"  # fmt: skip
    changes = [layer["relative_l2"] for layer in part["layers"]]
    yield "change without one layer", f"{min(changes):.2g}, {max(changes):.2g}", ""
    first = max(part["modes"], key=lambda mode: mode["relative_l2"])
    yield f"change without {first['name']}", f"{first['relative_l2']:.2g}", ""
    regions = part["regions"]["effects"]
    inside = [row["share_inside"] for row in regions if row.get("share_inside") is not None]
    expected = [row["share_expected"] for row in regions if row.get("share_inside") is not None]
    if inside:
        yield "effect of a region inside it", f"{np.mean(inside):.2f}", f"{np.mean(expected):.2f}"  # fmt: skip
    if part["faithfulness"]["area"] is not None:
        yield "faithfulness of energy", f"{part['faithfulness']['area']:+.2f}", "0"


def _stability(part: Mapping[str, Any]) -> Iterator[Row]:
    half = part.get("half_resolution", {})
    if "prediction" in half:
        yield "change at half resolution", f"{half['prediction']:.2g}", "0"
    other = part.get("other_data")
    if other:
        yield "error, other over usual data", f"{other['degradation']:.3g}", "1"
        for name, row in other["drift"].items():
            if isinstance(row, dict) and row["ratio"] is not None:
                yield f"drift of {name}, other data", f"{row['ratio']:.3g}", "1"
    for path, row in part.get("other_seeds", {}).items():
        name = Path(path).name
        if "reason" not in row["density"]:
            yield f"ρ of density, {name}", f"{row['density']['value']:+.3f}", _band(row["density"])
        for what, value in row["effects"].items():
            if isinstance(value, float):
                yield f"ρ of effects of {what}, {name}", f"{value:+.2f}", "1"


def _band(entry: Mapping[str, float]) -> str:
    return f"{entry['low']:+.3f} to {entry['high']:+.3f}, p = {entry['p']:.2g}"
