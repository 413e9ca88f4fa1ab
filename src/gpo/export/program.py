"""A forecaster on fixed sites as a program: traced once, with constants computed."""

from collections.abc import Sequence

import torch
from torch.export import Dim, ExportedProgram, export
from torch.fx import GraphModule

from gpo.export.constants import with_constants
from gpo.train.fixed import FixedForecaster


def export_program(fixed: FixedForecaster) -> ExportedProgram:
    """Returns the program of a forecaster: frames in, the predicted frame out, in any batch size.

    It has the operations of the model, in its order: answers are the same to the last digit,
    but for what libraries of other processors round differently.
    """
    shape = fixed.frames_shape
    module = _traced(fixed.eval(), shape).module()
    assert isinstance(module, GraphModule)
    return _traced(with_constants(module), shape)


def _traced(module: torch.nn.Module, shape: Sequence[int]) -> ExportedProgram:
    # Two samples stand for any number; one would be taken for a size that never changes.
    frames = torch.zeros(2, *shape)
    with torch.no_grad():
        return export(module, (frames,), dynamic_shapes=({0: Dim("batch", min=1)},))
