r"""Orthonormal functions along one axis that span the same fields as its waves.

Waves whose period is longer than their axis nearly depend on each other there: a field has many
representations, and which one least squares finds would depend on the sites. So a field is
measured in functions that are orthonormal on the axis, whose coefficients do not, and tokens are
made of these, smooth ones before rough ones. Combinations of waves that all but vanish on the
axis are left out.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor

VANISHING = 1e-3
"""Mean square on the axis, relative to the largest, below which a combination of waves is discarded."""


@dataclass(frozen=True)
class AxisBasis:
    """The functions of an axis from 0 to 1 with waves of a given period."""

    period: float
    combinations: Float[Tensor, "trigonometric functions"]
    """Every function as a sum of 1, cosines and sines."""
    roughness: Float[Tensor, " functions"]
    """Mean square of every function's slope, relative to that of the shortest wave."""

    @classmethod
    def of(cls, limit: int, period: float) -> "AxisBasis":
        """Returns the functions that the waves up to a number span."""
        nodes, weights = np.polynomial.legendre.leggauss(8 * limit + 16)
        x, q = torch.from_numpy((nodes + 1) / 2), torch.from_numpy(weights / 2)
        waves = _trigonometric(x, limit, period)
        squares, directions = torch.linalg.eigh(waves.mT @ (q.unsqueeze(-1) * waves))
        kept = squares > VANISHING * squares.max()
        combinations = directions[:, kept] * squares[kept].rsqrt()
        slopes = _slopes(x, limit, period) @ combinations
        roughness, turn = torch.linalg.eigh(slopes.mT @ (q.unsqueeze(-1) * slopes))
        return cls(period, combinations @ turn, roughness.clamp_min(0))

    @property
    def limit(self) -> int:
        """The largest wave number."""
        return (len(self.combinations) - 1) // 2

    def at(self, x: Float[Tensor, "*points"]) -> Float[Tensor, "*points functions"]:
        """Evaluates the functions at positions along the axis."""
        return _trigonometric(x, self.limit, self.period) @ self.combinations.to(x)

    @property
    def tokens(self) -> Complex[Tensor, "waves functions"]:
        """Returns the waves, from the most negative number on, that make up every function."""
        constant, cosines, sines = self.combinations.split([1, self.limit, self.limit])
        positive = torch.complex(cosines, -sines) / 2
        return torch.cat([positive.conj().flip(0), constant.to(positive), positive])


def _trigonometric(x: Tensor, limit: int, period: float) -> Tensor:
    numbers = torch.arange(1, limit + 1, device=x.device, dtype=x.dtype)
    phase = 2 * torch.pi * x.unsqueeze(-1) * numbers / period
    return torch.cat([torch.ones_like(x).unsqueeze(-1), phase.cos(), phase.sin()], dim=-1)


def _slopes(x: Tensor, limit: int, period: float) -> Tensor:
    """Returns the derivatives of the waves, in units of the largest wave number."""
    numbers = torch.arange(1, limit + 1, dtype=x.dtype) / limit
    _, cosines, sines = _trigonometric(x, limit, period).split([1, limit, limit], dim=-1)
    return torch.cat([torch.zeros_like(x).unsqueeze(-1), -numbers * sines, numbers * cosines], -1)
