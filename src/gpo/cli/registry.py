"""Commands of `gpo` by name; plug-ins register more."""

from typing import NamedTuple

from gpo.registry import Registry


class Command(NamedTuple):
    """A command: import path of its class, and one line of help."""

    target: str
    """`"module:Class"`; a data class of flags with a method `run`."""
    help: str


COMMANDS: Registry[Command] = Registry("command", {
    "run": Command("gpo.cli.run:RunCommand", "Trains on a benchmark or a file, evaluates the model and writes a report."),
    "train": Command("gpo.cli.run:TrainCommand", "Trains on a benchmark or a file of time series or static maps."),
    "evaluate": Command("gpo.cli.run:EvaluateCommand", "Evaluates a trained run and an untrained reference on the test split."),
    "report": Command("gpo.cli.run:ReportCommand", "Draws the figures of an evaluated run and writes report.html."),
    "predict": Command("gpo.cli.predict:PredictCommand", "Forecasts a time series, or maps fields, with a trained run; writes a file."),
    "export": Command("gpo.cli.export:ExportCommand", "Exports a trained model on fixed points to .pt2 or .onnx."),
    "interpret": Command("gpo.cli.interpret:InterpretCommand", "Measures the effect of particles and modes of a trained run."),
    "data": Command("gpo.cli.data:Data", "Generates, describes and plots data files."),
})  # fmt: skip
"""In the order of `gpo --help`."""
