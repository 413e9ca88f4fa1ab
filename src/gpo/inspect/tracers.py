"""Trajectories of tracers: points advected by a model's displacements or by the true velocity.

They are saved as NetCDF with CF trajectories (`featureType` trajectory; tracers by times) and
exported as VTK lines (`.vtp`), one per tracer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gpo.inspect.vtk import export_lines
from gpo.numerics.domain import Domain
from gpo.optional import require

KINDS = ("model", "true_flow", "other_example")
"""What advects a tracer: the model's displacements, the velocity of the data, or the displacements
that the model predicts in another example."""


@dataclass(frozen=True)
class Tracers:
    """Trajectories of tracers at common times, one row per tracer."""

    positions: Float[Tensor, "tracers times dim"]
    """Domain coordinates, NaN after a tracer has left the domain. Periodic axes are unwrapped, so
    that trajectories have no jumps. On the sphere, unit vectors."""
    times: Float[Tensor, " times"]
    """Time since the first frame."""
    kinds: Int64[Tensor, " tracers"]
    """What advects each tracer: an index into `KINDS`."""
    examples: Int64[Tensor, " tracers"]
    """Index of the example in which each tracer moves."""
    domain: Domain
    time_units: str = ""
    """Empty if the frames are only numbered."""

    def __post_init__(self) -> None:
        """Checks that the shape of `positions` matches the other columns."""
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
        """Concatenates sets of tracers that share their times."""
        columns = (torch.cat([getattr(part, name) for part in parts]) for name in ("positions", "kinds", "examples"))  # fmt: skip
        positions, kinds, examples = columns
        first = parts[0]
        return cls(positions, first.times, kinds, examples, first.domain, first.time_units)

    def of_kind(self, kind: str) -> Float[Tensor, "tracers times dim"]:
        """Returns the positions of the tracers of a kind, in the same order for every kind."""
        if kind not in KINDS:
            raise ValueError(f"`kind` must be one of {', '.join(KINDS)}, got {kind!r}.")
        return self.positions[self.kinds == KINDS.index(kind)]

    def save(self, path: str | Path, *, length_units: str = "1") -> None:
        """Writes a new NetCDF file (`.nc`) of CF trajectories.

        Args:
            path: The file; it is written completely or not at all.
            length_units: Units of the domain's coordinates, such as "m".
        """
        files = require("gpo.inspect.files", "data", "Saving tracers")
        dims = ("trajectory", "obs")
        coordinates = files.coordinate_variables(
            "", dims, self.positions, self.domain, "tracer", length_units
        )
        if not self.domain.is_sphere:
            for name, variable in coordinates.items():
                variable.attrs |= {"axis": name.upper(), "comment": "not wrapped on periodic axes"}
        time = self.times.expand(len(self), -1)
        coordinates["time"] = files.variable(
            dims, time, "time since the first frame", self.time_units or "1", axis="T"
        )
        indices = torch.arange(len(self))
        content = {
            "carried_by": files.variable(dims[:1], self.kinds, "what advects the tracer"),
            "example": files.variable(dims[:1], self.examples, "index of the example"),
            "trajectory": files.variable(
                dims[:1], indices, "index of the tracer", cf_role="trajectory_id"
            ),
        }
        content["carried_by"].attrs |= {
            "flag_values": list(range(len(KINDS))),
            "flag_meanings": " ".join(KINDS),
        }
        title = "Tracers advected by a model and by the flow"
        files.write_dataset(
            path, "Tracers", title, self.domain, content, coordinates, {"featureType": "trajectory"}
        )

    @classmethod
    def load(cls, path: str | Path) -> "Tracers":
        """Returns the tracers that `save` wrote."""
        files = require("gpo.inspect.files", "data", "Loading tracers")
        stored, dims = files.Stored.read(path, "Tracers"), ("trajectory", "obs")
        domain = stored.domain()
        units = str(stored.dataset["time"].attrs.get("units", "1"))
        return cls(
            stored.coords("", dims, domain), stored.tensor("time", dims)[0],
            stored.tensor("carried_by", dims[:1]), stored.tensor("example", dims[:1]), domain,
            "" if units == "1" else units,
        )  # fmt: skip

    def export(self, path: str | Path, *, is_text: bool = False) -> None:
        """Writes a new file of VTK lines (`.vtp`): time at points; kind and example of each line.

        Args:
            path: The file; it is written completely or not at all.
            is_text: Whether to write text instead of binary numbers.
        """
        at_points = {"time": self.times.expand(len(self), -1)}
        of_lines = {"carried_by": self.kinds, "example": self.examples}
        export_lines(path, self.positions, at_points, of_lines, is_text)
