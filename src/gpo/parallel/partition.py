"""Which sites a process holds where several share them."""

from dataclasses import dataclass

from gpo.data.geometry import Geometry


@dataclass(frozen=True)
class SitePartition:
    """One of equal parts of all sites, cut along whole lines of a grid."""

    rank: int = 0
    count: int = 1
    per_line: int = 1
    """Sites that stay together."""

    @classmethod
    def of(cls, geometry: Geometry, rank: int, count: int) -> "SitePartition":
        """Returns a part of the sites of a data set; raises an error where there are too few."""
        shape = geometry.grid_shape
        lines = shape[0] if shape else geometry.num_points
        if lines < count:
            what = f"lines of the {' x '.join(map(str, shape))} grid" if shape else "sites"
            raise ValueError(
                f"`space_shards` must be at most the {lines} {what}, got {count}: "
                "every process needs some."
            )
        return cls(rank, count, geometry.num_points // lines)

    def among(self, num_points: int) -> slice:
        """Returns the part of so many sites."""
        lines = num_points // self.per_line
        begin, end = (lines * rank // self.count for rank in (self.rank, self.rank + 1))
        return slice(begin * self.per_line, end * self.per_line)
