r"""Fields on the unit sphere as sums of spherical harmonics, scalars and tangent vectors.

A real field is $\sum_{l\le L}\sum_m a_{lm}Y_{lm}$ with orthonormal $Y_{lm}$; coefficients of
orders $m\ge0$ are listed order by order, degrees running fastest. Vectors have a southward
and an eastward component, along growing $\theta$ and $\varphi$. Transforms are those of
`ducc0`, an extra because its licence (GPL) is not ours: pip install 'gpo[sphere]'.
"""

import math
from typing import Literal

import numpy as np
from jaxtyping import Complex, Float

from gpo.optional import require

Coefficients = Complex[np.ndarray, " modes"]
Field = Float[np.ndarray, "latitudes longitudes"]
Vector = Float[np.ndarray, "2 latitudes longitudes"]


class SphericalHarmonics:
    """Transforms between one grid and all degrees up to `max_degree`.

    Args:
        max_degree: Highest degree L; orders go as far.
        rule: `gauss` for latitudes on which products of two fields are projected exactly,
            `centers` for evenly spaced ones, half a spacing off the poles.
        num_latitudes: Where not given, as many as a product of two fields takes: (3 L + 1) / 2.
    """

    def __init__(
        self,
        max_degree: int,
        rule: Literal["gauss", "centers"] = "gauss",
        num_latitudes: int | None = None,
    ) -> None:
        self._library = require("ducc0", "sphere", "Flow on the sphere")
        self.max_degree = max_degree
        self.num_latitudes = num_latitudes or even(math.ceil((3 * max_degree + 1) / 2))
        self.shape = (self.num_latitudes, 2 * self.num_latitudes)
        self._rule = {"gauss": "GL", "centers": "F1"}[rule]
        self.theta = (np.arange(self.num_latitudes) + 0.5) * math.pi / self.num_latitudes
        if rule == "gauss":
            self.theta = np.asarray(self._library.misc.GL_thetas(self.num_latitudes))
        self.phi = np.arange(self.shape[1]) * 2 * math.pi / self.shape[1]
        orders = range(max_degree + 1)
        self.degree = np.concatenate([np.arange(order, max_degree + 1) for order in orders])
        self.order = np.repeat(orders, [max_degree + 1 - order for order in orders])
        self.laplacian = -self.degree * (self.degree + 1.0)
        self._slope = np.sqrt(-self.laplacian)
        # There is no vector of degree 0; its entry is multiplied by zero.
        self._inverse_slope = np.divide(
            1.0, self._slope, where=self._slope > 0, out=0 * self._slope
        )

    def field(self, coefficients: Coefficients) -> Field:
        """Returns a scalar on the grid."""
        return self._synthesis(coefficients[None], 0)[0]

    def coefficients(self, field: Field) -> Coefficients:
        """Returns the projection of a scalar on all degrees."""
        return self._analysis(field[None], 0)[0]

    def vector(self, vorticity: Coefficients, divergence: Coefficients) -> Vector:
        r"""Returns the vector field with this $k\cdot\nabla\times u$ and $\nabla\cdot u$."""
        potentials = np.stack([divergence, vorticity]) * -self._inverse_slope
        return self._synthesis(potentials, 1)

    def curl_and_divergence(self, vector: Vector) -> tuple[Coefficients, Coefficients]:
        r"""Returns $k\cdot\nabla\times u$ and $\nabla\cdot u$, with the radial unit vector k."""
        divergence, curl = self._analysis(vector, 1) * -self._slope
        return curl, divergence

    def first_order(self, profile: Float[np.ndarray, " latitudes"]) -> Coefficients:
        r"""Returns the projection of $p(\theta)\cos\varphi$, at little cost."""
        four_longitudes = np.outer(profile, [1.0, 0.0, -1.0, 0.0])[None]
        found = self._analysis(four_longitudes, 0, max_order=1)[0]
        everything = np.zeros(len(self.degree), complex)
        everything[self.order == 1] = found[self.max_degree + 1 :]
        return everything

    def truncated(self, coefficients: Complex[np.ndarray, " others"]) -> Coefficients:
        """Returns coefficients listed up to another degree, cut or filled with zeros."""
        # Up to degree L there are (L + 1)(L + 2)/2 of them.
        degree = (math.isqrt(8 * len(coefficients) + 1) - 3) // 2
        out = np.zeros(len(self.degree), complex)
        is_shared = (self.degree <= degree) & (self.order <= degree)
        shared_order, shared_degree = self.order[is_shared], self.degree[is_shared]
        first = shared_order * (2 * degree + 1 - shared_order) // 2
        out[is_shared] = coefficients[first + shared_degree]
        return out

    def _synthesis(self, coefficients: np.ndarray, spin: int) -> np.ndarray:
        return self._library.sht.synthesis_2d(
            alm=coefficients,
            spin=spin,
            lmax=self.max_degree,
            geometry=self._rule,
            ntheta=self.shape[0],
            nphi=self.shape[1],
            nthreads=1,
        )

    def _analysis(self, maps: np.ndarray, spin: int, max_order: int | None = None) -> np.ndarray:
        return self._library.sht.analysis_2d(
            map=maps,
            spin=spin,
            lmax=self.max_degree,
            mmax=self.max_degree if max_order is None else max_order,
            geometry=self._rule,
            nthreads=1,
        )


def even(size: int) -> int:
    """Returns the next even number."""
    return size + size % 2
