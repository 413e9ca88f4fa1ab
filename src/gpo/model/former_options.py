"""Options of `PaperConfig` under which earlier versions trained: model folders and run folders of theirs.

There the readout was a flag, and periodic axes were always treated as such.
"""

from collections.abc import Mapping
from typing import Any

FORMER_OPTIONS: dict[str, Any] = {
    "nearest_images": True,
    "integer_frequencies": True,
    "input_coordinates": False,
    "layer_norm": False,
    "temperature": 1.0,
    "learns_temperature": False,
    "places_windows": False,
    "names_modes": False,
    "shares_windows": False,
    "has_biases": False,
    "token_width": 0,
}
"""Options that earlier versions did not have, with the values that do what they did."""


def with_present_options(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a stored `PaperConfig` by the names of this version.

    Args:
        stored: The fields, of this or an earlier version; those of other models stay as they are.
    """
    if "signed_readout" not in stored:
        return dict(stored)
    fields = {name: value for name, value in stored.items() if name != "signed_readout"}
    readout = "linear" if stored["signed_readout"] else "softplus"
    return {**FORMER_OPTIONS, "readout": readout, **fields}
