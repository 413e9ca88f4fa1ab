"""`gpo export`: writes a trained model as one file that runs without gpo."""

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from gpo.atomic_files import cleans_up_on_sigterm
from gpo.cli.console import PlainConsole, say
from gpo.cli.query_flags import QueryFile, QueryGrid, check_query_flags, read_query_flags


@dataclass(frozen=True, kw_only=True)
class ExportCommand:
    """Exports a trained model on fixed points: .pt2 runs with torch, .onnx with onnxruntime."""

    folder: Positional[Path]
    """Run folder of a model gpo or gpo-paper."""
    output: Path
    """New file, .pt2 or .onnx; existing files are not overwritten."""
    sample: int = 0
    """Index of the sample (or trajectory) whose points are used, if they differ."""
    queries: QueryFile = None
    """Query points, one per row (x y z, or longitude latitude), as text or .npy."""
    grid: QueryGrid = ()
    """Points per axis of a regular grid of queries, such as 128 256."""

    def run(self) -> None:
        """Traces the model and writes the file."""
        from gpo.exporting.export import export
        from gpo.exporting.program import check_output
        from gpo.runs import open_run

        check_output(self.output)
        check_query_flags(self.queries, self.grid)
        run = open_run(self.folder)
        queries = None
        if self.queries or self.grid:
            geometry = run.data.geometry(self.sample)
            queries = read_query_flags(self.queries, self.grid, geometry)
        forecaster = run.forecaster()
        with cleans_up_on_sigterm(), PlainConsole().status("tracing"):
            export(forecaster, run.data, self.output, sample=self.sample, queries=queries)
        if forecaster.blend is not None:
            say("the program is the model alone, without the references that gpo predict blends in")
        megabytes = self.output.stat().st_size / 2**20
        say(f"program: {self.output} ({megabytes:.1f} MB)")
