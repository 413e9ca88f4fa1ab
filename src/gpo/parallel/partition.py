"""Which sites a process holds where several share them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SitePartition:
    """One of equal parts of all sites, cut along whole lines of a grid."""

    rank: int = 0
    count: int = 1
    per_line: int = 1
    """Sites of a grid line, which stay together."""

    @classmethod
    def of(
        cls, num_points: int, grid_shape: tuple[int, ...], rank: int, count: int
    ) -> "SitePartition":
        """Returns a part of the sites of a data set; raises an error where there are too few.

        Args:
            num_points: All sites.
            grid_shape: Sites along every axis of a grid; empty for unstructured points.
            rank: Which part.
            count: How many parts.
        """
        lines = grid_shape[0] if grid_shape else num_points
        if lines < count:
            shape = " x ".join(map(str, grid_shape))
            what = f"lines of the {shape} grid" if grid_shape else "sites"
            raise ValueError(
                f"`space_shards` must be at most the {lines} {what}, got {count}: "
                "every process needs some."
            )
        return cls(rank, count, num_points // lines)

    def among(self, num_points: int) -> slice:
        """Returns the slice of this part among `num_points` sites."""
        lines = num_points // self.per_line
        begin, end = (lines * rank // self.count for rank in (self.rank, self.rank + 1))
        return slice(begin * self.per_line, end * self.per_line)
