r"""Extrapolation along the motion of the last frames, as rain is forecast from radar images.

With $C$, which carries a field by one step (`numerics/motion.py`), the forecast is

$\hat u'=G_\sigma * C\big(u+\tau\,(u-C u_{-1})\big)$:

the last frame and a fraction of its last change along the motion, smoothed where that is better.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpo.forecast.examples import Example, collate
from gpo.forecast.references import AbstractReference, ReferenceInputs
from gpo.forecast.rollout import AbstractForecast, rollout
from gpo.numerics.motion import blurred, carried, estimate_motion

WINDOW = 4.0
"""Standard deviation in cells of the smallest window that motion is estimated in."""
BLURS = {1.0: (0.0, 0.4), 0.0: (0.0, 0.4, 0.8)}
"""Standard deviations in cells from which that of the smoothing is chosen, with motion and without."""
SHARES = (0.5, 1.0)
r"""Multiples of the least-squares fraction of one step from which $\tau$ is chosen: in rollouts less may
go on."""
MIN_CELLS = 16
"""Minimum number of cells along an axis."""
MAX_SITES = 2**18
"""Maximum number of sites: with more, windows take longer than a step of training."""
MAX_VALUES = 2**17
"""Maximum number of values of the examples that parameters are fitted to, but for two examples."""
MAX_EXAMPLES = 8
NUM_STEPS = 3
"""Steps of the rollouts on which forecasts with and without motion are compared."""
MARGIN = 0.9
"""Motion must multiply the squared error by less than this; interpolation alone smooths noise."""
FITTED = ("moves", "growth", "blur")


@dataclass(frozen=True)
class Extrapolation(AbstractReference):
    """The last frame, carried along the motion between the input frames, on a grid of two axes."""

    shape: Int[Tensor, "2"]
    """Cells along each axis."""
    wraps: Int[Tensor, "2"]
    """One where an axis is periodic."""
    nearest: Int[Tensor, " points"]
    """For each site the nearest one that is not masked: itself where it is not."""
    moves: Float[Tensor, " outputs"]
    """One for a variable that is carried, zero for one that stays as it is."""
    growth: Float[Tensor, " outputs"]
    r"""The fraction $\tau$ of the change along the motion that goes on."""
    blur: Float[Tensor, " outputs"]
    r"""The standard deviation $\sigma$ of the smoothing in cells."""

    @classmethod
    def fit(cls, inputs: ReferenceInputs) -> "Extrapolation | None":
        """Fits fraction and smoothing, for each variable that has a smaller error with motion.

        Without motion, fraction and smoothing are fitted as well, so that motion alone decides.
        Returns None with one input frame, where sites are no rectilinear grid of two axes of the
        plane, and where no variable gains.
        """
        task, geometry = inputs.task, inputs.data.geometry()
        shape, size = geometry.grid_shape, geometry.num_points * len(task.outputs)
        if not inputs.is_forecast or task.history < 2 or len(inputs.data.geometries) > 1:
            return None
        if len(shape) != 2 or not geometry.axes or geometry.domain.is_sphere:
            return None
        if min(shape) < MIN_CELLS or geometry.num_points > MAX_SITES:
            return None
        most = max(2, min(MAX_EXAMPLES, MAX_VALUES // size))
        examples = list(inputs.examples(most, NUM_STEPS))
        if not examples:
            return None
        zeros = torch.zeros(len(task.outputs), dtype=torch.double)
        start = cls(
            task,
            shape=torch.tensor(shape),
            wraps=torch.tensor(geometry.wraps()).long(),
            nearest=torch.from_numpy(geometry.nearest_sites[:, 0].copy()).long(),
            moves=zeros + 1,
            growth=zeros,
            blur=zeros,
        )
        fitted = start._fitted(collate(examples))
        return fitted if bool(fitted.moves.any()) else None

    def applies_to(self, num_points: int) -> bool:
        """Returns whether there are as many points as in training."""
        return num_points == len(self.nearest)

    def __call__(self, frames, coords, *, weights=None, seasons=None) -> Tensor:  # noqa: ANN001
        """Returns the carried last frame; what comes from masked sites is the nearest value."""
        outputs = []
        for number, history in enumerate(self.task.state(frames).unbind(-1)):
            blur, parts = float(self.blur[number]), self._carried(history, number)
            last, change = (self._smoothed(part, blur) for part in parts)
            low, high = (bound(last, (1, 2), keepdim=True) for bound in (torch.amin, torch.amax))
            moved = last + self.growth[number].item() * change
            outputs.append(moved.clamp(low, high).flatten(1))
        return torch.stack(outputs, -1).to(frames)

    def _carried(
        self, history: Float[Tensor, "batch history points"], number: int
    ) -> tuple[Float[Tensor, "batch rows columns"], Float[Tensor, "batch rows columns"]]:
        """Returns the last frame of a variable and its last change, both carried by one step."""
        nearest, wraps = self.nearest.to(history.device), self.wraps.bool().tolist()
        grids = history[..., nearest].double().unflatten(-1, self.shape.tolist())
        if not self.moves[number]:
            return grids[:, -1], grids[:, -1] - grids[:, -2]
        low, high = (bound(grids, (1, 2, 3), keepdim=True) for bound in (torch.amin, torch.amax))
        images = (grids - low) / torch.where(high > low, high - low, 1.0)
        is_active = nearest == torch.arange(len(nearest), device=nearest.device)
        weights = is_active.view(grids.shape[2:]).float()
        motion = estimate_motion(images.float(), weights, wraps, WINDOW).double()
        change = grids[:, -1] - carried(grids[:, -2], motion, wraps)
        # Cubic interpolation overshoots.
        last = carried(grids[:, -1], motion, wraps).clamp(low[:, 0], high[:, 0])
        return last, carried(change, motion, wraps)

    def _smoothed(
        self, fields: Float[Tensor, "batch rows columns"], blur: float
    ) -> Float[Tensor, "batch rows columns"]:
        return blurred(fields, blur, self.wraps.bool().tolist())

    def _fitted(self, batch: Example) -> "Extrapolation":
        """Returns the best extrapolation, and persistence of variables that gain nothing by motion."""
        candidates = [
            replace(one, growth=share * one.growth)
            for moves, blurs in BLURS.items()
            for one in (self._with_blur(batch, moves, blur) for blur in blurs)
            for share in SHARES
        ]
        errors = torch.stack([_errors(one, batch) / (MARGIN**one.moves) for one in candidates])
        parts = [torch.stack([one.tensors()[name] for one in candidates]) for name in FITTED]
        moves, growth, blur = (part.gather(0, errors.argmin(0)[None])[0] for part in parts)
        return replace(self, moves=moves, growth=moves * growth, blur=moves * blur)

    def _with_blur(self, batch: Example, moves: float, blur: float) -> "Extrapolation":
        """Returns the forecast with or without motion, and least-squares fractions of the change."""
        start = replace(self, moves=torch.full_like(self.moves, moves))
        factors = []
        for number, history in enumerate(batch.fields.unbind(-1)):
            parts = start._carried(history, number)
            last, change = (self._smoothed(part, blur).flatten(1) for part in parts)
            missing = batch.weights * (batch.target[..., number] - last)
            square = (batch.weights * change.square()).sum()
            factors.append((missing * change).sum() / square if square > 0 else square)
        growth = torch.stack(factors).clamp(-1.0, 1.0)
        return replace(start, growth=growth, blur=torch.full_like(growth, blur))


def _errors(forecast: AbstractForecast, batch: Example) -> Float[Tensor, " outputs"]:
    """Returns the squared error of rollouts, for each variable."""
    steps = rollout(
        forecast, batch.frames, batch.coords, batch.targets.shape[1],
        forcings=batch.forcings, seasons=batch.seasons,
    )  # fmt: skip
    squares = (steps - batch.targets).square()
    return (batch.weights[:, None, :, None] * squares).sum((0, 1, 2))
