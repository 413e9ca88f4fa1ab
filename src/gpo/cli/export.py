"""`gpo export`: a trained run as one file that runs without gpo."""

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from gpo.atomic_files import unwinds_on_sigterm
from gpo.cli.console import PlainConsole, say


@dataclass(frozen=True, kw_only=True)
class ExportCommand:
    """Writes a trained run on its sites as a program: .pt2 runs with torch, .onnx with onnxruntime."""

    folder: Positional[Path]
    """A run folder of a model gpo."""
    output: Path
    """File to write, .pt2 or .onnx; one that is there is not overwritten."""
    sample: int = 0
    """Trajectory or static map of the run's data whose sites are taken, where they differ."""
    queries: Path | None = None
    """Points to predict at, one per row: x y z, or longitude latitude; text or .npy."""
    grid: tuple[int, ...] = ()
    """Sites along each axis of a regular grid to predict at, such as 128 256."""

    def run(self) -> None:
        """Fixes the sites, traces, writes."""
        from gpo.data.query_points import read_query_points, regular_query_points
        from gpo.exporting.export import export
        from gpo.exporting.program import check_output
        from gpo.runs import open_run

        check_output(self.output)
        if self.queries and self.grid:
            raise ValueError("Give either --queries or --grid, not both.")
        run = open_run(self.folder)
        queries = None
        if self.queries:
            queries = read_query_points(self.queries, run.data.geometry(self.sample))
        elif self.grid:
            queries = regular_query_points(self.grid, run.data.geometry(self.sample))
        given = run.forecaster(), run.data, self.output
        with unwinds_on_sigterm(), PlainConsole().status("tracing"):
            export(*given, sample=self.sample, queries=queries)
        megabytes = self.output.stat().st_size / 2**20
        say(f"program: {self.output} ({megabytes:.1f} MB)")
