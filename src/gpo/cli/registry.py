"""The commands of `gpo` by name; installed plug-ins add their own."""

from typing import NamedTuple

from gpo.registry import Registry


class Command(NamedTuple):
    """A command: where the class is that parses and runs it, and what it does in a line."""

    target: str
    """`"module:Class"`; the class is a data class of flags with a method `run`."""
    help: str


COMMANDS: Registry[Command] = Registry("command", {
    "run": Command("gpo.cli.run:RunCommand", "Trains on a benchmark or a file, scores the model and writes a report."),
    "train": Command("gpo.cli.run:TrainCommand", "Trains on a benchmark or a file of time series or static maps."),
    "evaluate": Command("gpo.cli.run:EvaluateCommand", "Scores a trained run on its test split, beside a reference that learns nothing."),
    "report": Command("gpo.cli.run:ReportCommand", "Draws the figures of an evaluated run and writes report.html."),
    "predict": Command("gpo.cli.predict:PredictCommand", "Continues a time series, or maps fields, with a trained run; writes NetCDF or Zarr."),
    "export": Command("gpo.cli.export:ExportCommand", "Writes a trained run on its sites as a program: .pt2 or .onnx."),
    "interpret": Command("gpo.cli.interpret:InterpretCommand", "Measures what particles and modes of a trained run do; writes interpret.json."),
    "data": Command("gpo.cli.data:Data", "Makes, describes and draws data files."),
    "presets": Command("gpo.cli.presets:Presets", "Lists the paper's configurations and their parameter counts."),
})  # fmt: skip
"""In the order of the help."""
