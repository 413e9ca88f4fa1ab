"""What is seen in the figures of `interpret.json`, in a sentence or two each."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gpo.evaluate.interpret.interpretation import Interpretation

TITLES = {
    "structures": "Do particles sit on structures?",
    "modes": "Which modes are used?",
    "faithfulness": "Do the strongest modes matter most?",
    "regions": "What depends on which region?",
}


def captions(found: Interpretation) -> dict[str, str]:
    """Returns what is seen in every figure, in numbers."""
    makers: dict[str, tuple[Mapping[str, Any], Callable[[Mapping[str, Any]], str]]] = {
        "structures": (found.structures, _about_structures),
        "modes": (found.windows, _about_windows),
        "faithfulness": (found.causes, _about_faithfulness),
        "regions": (found.causes, _about_regions),
    }
    return {name: make(part) for name, (part, make) in makers.items() if "reason" not in part}


def banded(structures: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    """Returns every number that has a band, by what is compared."""
    entries = {
        f"{particle} – {structure}": entry
        for particle, row in structures["correlations"].items()
        for structure, entry in row.items()
        if "reason" not in entry
    }
    if "reason" not in structures["alignment"]:
        entries["long axis – gradient direction"] = structures["alignment"]
    return entries


def _about_structures(part: Mapping[str, Any]) -> str:
    entries = banded(part)
    if not entries:
        return "Nothing could be ranked."
    outside = [name for name, entry in entries.items() if not entry["low"] <= entry["value"] <= entry["high"]]  # fmt: skip
    strongest = max(entries, key=lambda name: abs(entries[name]["value"]))
    found = f"{len(outside)} of {len(entries)} lie outside ({', '.join(outside)})" if outside else f"none of {len(entries)} lies outside"  # fmt: skip
    return (
        f"Dots are measured, grey bars hold 95 % of what chance gives ({part['null_means']}). Of them "
        f"{found}; one in twenty would by chance. The largest is {entries[strongest]['value']:+.2f} "
        f"({strongest}), where 1 would be perfect. Of its own particles a site sees "
        f"{part['basis_at_site']:.2g}, between 0 and 1.{_about_place(part['share_from_field'])}"
    )


def _about_place(shares: Mapping[str, float | None]) -> str:
    known = [share for share in shares.values() if share is not None]
    if not known:
        return ""
    return (
        f" Of what differs between particles, {min(known):.1%} to {max(known):.1%} is due to the "
        "field, the rest to their place and number."
    )


def _about_windows(part: Mapping[str, Any]) -> str:
    modes = [np.mean(layer["effective_modes"]) for layer in part["layers"]]
    if part["kind"] == "waves":
        text = (
            f"How the energy that a layer scatters back is shared by {len(part['vectors'])} waves: as "
            f"if there were {modes[0]:.0f} equal ones in the first layer, {modes[-1]:.0f} in the last."
        )
        gram = part["gram"]
        if "reason" not in gram and gram["measured"]["share_hardly_seen"] > 0:
            text += f" {gram['measured']['share_hardly_seen']:.0%} of what waves can express the sites hardly see."  # fmt: skip
        return text
    count, extent = len(part["layers"][0]["coverage"][0]), np.mean([layer["extent"] for layer in part["layers"]])  # fmt: skip
    return (
        f"Every row is a head, every column one of its {count} modes: used as if there were "
        f"{min(modes):.1f} to {max(modes):.1f} equal ones. Windows reach {extent:.0%} as far as the "
        "whole domain on average."
    )


def _about_faithfulness(part: Mapping[str, Any]) -> str:
    curve, about = part["faithfulness"], part["score_against_effect"]
    area = "no number: switching all off does not raise the error" if curve["area"] is None else f"{curve['area']:+.2f}"  # fmt: skip
    ranked = "" if about is None else f" Among the modes switched off one by one, energy and effect have a rank correlation of {about:+.2f}."  # fmt: skip
    return (
        "Where the full line rises above the band, a mode's energy tells that it matters. Area "
        f"between both, 0 where energy tells nothing: {area}.{ranked} Without any particle the "
        f"prediction changes by {part['particles']['all']['relative_l2']:.2g}; the model errs by "
        f"{part['error']:.2g}."
    )


def _about_regions(part: Mapping[str, Any]) -> str:
    rows = part["regions"]["effects"]
    inside = [row["share_inside"] for row in rows if row.get("share_inside") is not None]
    expected = [row["share_expected"] for row in rows if row.get("share_inside") is not None]
    if not inside:
        return "Switching a region off changes nothing."
    return (
        f"The values and particles of one of {len(rows)} regions are switched off at a time. On "
        f"average {np.mean(inside):.0%} of the change stays inside, where an even change would have "
        f"{np.mean(expected):.1%}: the rest is what the region causes elsewhere."
    )
