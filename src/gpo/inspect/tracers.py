"""Points that are carried along, step by step: where a model takes them, and where the true flow does.

Files are NetCDF with CF trajectories (`featureType` trajectory, one row per tracer and one column per
time), and VTK's lines (`.vtp`), one per tracer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gpo.numerics.domain import Domain
from gpo.optional import require

KINDS = ("model", "true_flow", "other_example")
"""Who carries a tracer: the displacements of a model, the velocity of the data, or the displacements
that the model has in another example."""


@dataclass(frozen=True)
class Tracers:
    """One row per tracer: its way through the domain."""

    positions: Float[Tensor, "tracers times dim"]
    """In domain coordinates, NaN once it has left; not wrapped around periodic axes, so that a way
    has no jumps. On the sphere unit vectors."""
    times: Float[Tensor, " times"]
    """Since the first frame."""
    kinds: Int64[Tensor, " tracers"]
    """Who carries it: its number in `KINDS`."""
    examples: Int64[Tensor, " tracers"]
    """In which example it goes."""
    domain: Domain
    time_units: str = ""
    """Empty where frames are only numbered."""

    def __post_init__(self) -> None:
        """Refuses rows that do not fit together."""
        count, times, dim = len(self.kinds), len(self.times), self.domain.dim
        if self.positions.shape != (count, times, dim):
            raise ValueError(
                f"`positions` must have shape {(count, times, dim)}, tracers by times by "
                f"coordinates, got {tuple(self.positions.shape)}."
            )

    def __len__(self) -> int:
        return len(self.kinds)

    @classmethod
    def joined(cls, parts: Sequence["Tracers"]) -> "Tracers":
        """Returns all tracers of several sets at the same times."""
        columns = (torch.cat([getattr(part, name) for part in parts]) for name in ("positions", "kinds", "examples"))  # fmt: skip
        positions, kinds, examples = columns
        first = parts[0]
        return cls(positions, first.times, kinds, examples, first.domain, first.time_units)

    def of_kind(self, kind: str) -> Float[Tensor, "tracers times dim"]:
        """Returns the ways of tracers of one of `KINDS`, in the same order for each."""
        if kind not in KINDS:
            raise ValueError(f"`kind` must be one of {', '.join(KINDS)}, got {kind!r}.")
        return self.positions[self.kinds == KINDS.index(kind)]

    def save(self, path: str | Path, *, length_units: str = "1") -> None:
        """Writes a new NetCDF file (`.nc`) of CF trajectories.

        Args:
            path: The file; it is whole or not there.
            length_units: Units of the domain's coordinates, such as "m".
        """
        files = require("gpo.inspect.files", "data", "Saving tracers")
        dims = ("trajectory", "obs")
        place = files.place_variables("", dims, self.positions, self.domain, "tracer", length_units)
        if not self.domain.is_sphere:
            for name, variable in place.items():
                variable.attrs |= {"axis": name.upper(), "comment": "goes on beyond periodic ends"}
        time = self.times.expand(len(self), -1)
        place["time"] = files.variable(
            dims, time, "time since the first frame", self.time_units or "1", axis="T"
        )
        meanings = {"flag_values": list(range(len(KINDS))), "flag_meanings": " ".join(KINDS)}
        numbers = torch.arange(len(self))
        content = {
            "carried_by": files.variable(("trajectory",), self.kinds, "who carries the tracer"),
            "example": files.variable(("trajectory",), self.examples, "number of the example"),
            "trajectory": files.variable(
                ("trajectory",), numbers, "number of the tracer", cf_role="trajectory_id"
            ),
        }
        content["carried_by"].attrs |= meanings
        title = "Tracers carried by a model and by the flow"
        files.write_dataset(
            path, "Tracers", title, self.domain, content, place, {"featureType": "trajectory"}
        )

    @classmethod
    def load(cls, path: str | Path) -> "Tracers":
        """Returns what `save` wrote."""
        files = require("gpo.inspect.files", "data", "Loading tracers")
        stored, dims = files.Stored.read(path, "Tracers"), ("trajectory", "obs")
        domain = stored.domain()
        units = str(stored.dataset["time"].attrs.get("units", "1"))
        return cls(
            stored.places("", dims, domain), stored.tensor("time", dims)[0],
            stored.tensor("carried_by", dims[:1]), stored.tensor("example", dims[:1]), domain,
            "" if units == "1" else units,
        )  # fmt: skip

    def export(self, path: str | Path, *, is_text: bool = False) -> None:
        """Writes a new file of VTK lines (`.vtp`): time at the points, kind and example of every line.

        Args:
            path: The file; it is whole or not there.
            is_text: Whether numbers are written out, not as bytes.
        """
        from gpo.inspect.vtk import export_lines

        labels = {"carried_by": self.kinds, "example": self.examples}
        export_lines(path, self.positions, {"time": self.times.expand(len(self), -1)}, labels, is_text)  # fmt: skip
