r"""Spherical harmonic transforms of scalar and tangent vector fields on the unit sphere.

A real field is $\sum_{l\le L}\sum_m a_{lm}Y_{lm}$ with orthonormal $Y_{lm}$. Coefficients of orders
$m\ge0$ are listed order by order, with the degree as the fastest index. Vectors have a southward
and an eastward component, along increasing $\theta$ and $\varphi$. The transforms are those of
`ducc0`, which is an extra because of its licence (GPL): pip install 'gpo[sphere]'.
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
    """Transforms between a grid and all degrees up to `max_degree`.

    Args:
        max_degree: Highest degree and order L.
        rule: `gauss` for Gaussian latitudes, on which the projection of products of two fields is
            exact; `centers` for equally spaced latitudes, half a spacing off the poles.
        num_latitudes: Number of latitudes; by default as many as products of two fields need,
            (3 L + 1) / 2.
    """

    def __init__(
        self,
        max_degree: int,
        rule: Literal["gauss", "centers"] = "gauss",
        num_latitudes: int | None = None,
    ) -> None:
        self._library = require("ducc0", "sphere", "Flow on the sphere")
        self.max_degree = max_degree
        self.num_latitudes = num_latitudes or 2 * math.ceil((3 * max_degree + 1) / 4)
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
        # Vector fields have no degree 0; its entry is multiplied by zero.
        self._inverse_slope = np.divide(
            1.0, self._slope, where=self._slope > 0, out=0 * self._slope
        )

    def field(self, coefficients: Coefficients) -> Field:
        """Returns a scalar field on the grid."""
        return self._synthesis(coefficients[None], 0)[0]

    def coefficients(self, field: Field) -> Coefficients:
        """Returns the coefficients of a scalar field."""
        return self._analysis(field[None], 0)[0]

    def vector(self, vorticity: Coefficients, divergence: Coefficients) -> Vector:
        r"""Returns the vector field with this $k\cdot\nabla\times u$ and $\nabla\cdot u$."""
        potentials = np.stack([divergence, vorticity]) * -self._inverse_slope
        return self._synthesis(potentials, 1)

    def curl_and_divergence(self, vector: Vector) -> tuple[Coefficients, Coefficients]:
        r"""Returns $k\cdot\nabla\times u$ and $\nabla\cdot u$ with the radial unit vector $k$."""
        divergence, curl = self._analysis(vector, 1) * -self._slope
        return curl, divergence

    def first_order(self, profile: Float[np.ndarray, " latitudes"]) -> Coefficients:
        r"""Returns the coefficients of $p(\theta)\cos\varphi$ by a transform of four longitudes."""
        four_longitudes = np.outer(profile, [1.0, 0.0, -1.0, 0.0])[None]
        low_orders = self._analysis(four_longitudes, 0, max_order=1)[0]
        coefficients = np.zeros(len(self.degree), complex)
        coefficients[self.order == 1] = low_orders[self.max_degree + 1 :]
        return coefficients

    def truncated(self, coefficients: Complex[np.ndarray, " others"]) -> Coefficients:
        """Returns coefficients of another maximum degree, truncated or padded with zeros."""
        # There are (L + 1)(L + 2)/2 coefficients up to degree L.
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
