"""Alignment tells Gaussians along fronts from those across them; density, clustered from regular ones."""

import numpy as np
import pytest
import torch

from gpo.data.geometry import Geometry
from gpo_mixture import GaussianMixture
from gpo_mixture.structure import RepresentedField, describe_structure

AXIS = np.arange(32) / 32
TORUS = Geometry.rectilinear([AXIS, AXIS], periodic=True)
BOX = Geometry.rectilinear([AXIS, AXIS])
MASKED = BOX.masked(np.random.default_rng(0).random(BOX.num_points) < 0.1)


def front(geometry):
    """A field that varies along x alone: its fronts are parallel to y."""
    return np.tanh(8 * np.sin(2 * np.pi * geometry.coords[:, :1])) / 8


def gaussians(geometry, centers, scales, angle=0.0):
    rotation = torch.tensor([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    covariance = rotation @ torch.diag(torch.tensor(scales, dtype=torch.float64) ** 2) @ rotation.mT
    count = len(centers)
    return GaussianMixture(
        torch.from_numpy(centers), torch.linalg.cholesky(covariance).expand(count, 2, 2),
        torch.ones(count, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64),
        torch.arange(count), geometry.domain,
    )  # fmt: skip


def describe(geometry, centers, scales, angle=0.0):
    mixture = gaussians(geometry, centers, scales, angle)
    field = RepresentedField(mixture, geometry, front(geometry))
    return describe_structure([field, field], np.random.default_rng(0))


REGULAR = np.stack(np.meshgrid(*[(np.arange(8) + 0.5) / 8] * 2, indexing="ij"), -1).reshape(-1, 2)


@pytest.mark.parametrize("geometry", [TORUS, BOX, MASKED], ids=["torus", "box", "masked"])
def test_long_axes_along_a_front_have_alignment_minus_one_and_across_it_one(geometry):
    along = describe(geometry, REGULAR, [0.02, 0.1])["alignment"]["value"]
    across = describe(geometry, REGULAR, [0.1, 0.02])["alignment"]["value"]
    assert (along, across) == pytest.approx((-1, 1), abs=1e-6)
    oblique = describe(geometry, REGULAR, [0.02, 0.1], np.pi / 4)["alignment"]["value"]
    assert oblique == pytest.approx(0, abs=1e-6)


def test_the_null_band_includes_alignment_with_a_gradient_of_uniform_direction():
    """A displaced gradient of uniform direction is the same, so alignment is not significant."""
    description = describe(TORUS, REGULAR, [0.02, 0.1])["alignment"]
    assert description["low"] <= description["value"] + 1e-6
    assert description["low"] == pytest.approx(-1, abs=1e-6)


def test_isotropic_gaussians_have_no_alignment():
    assert describe(TORUS, REGULAR, [0.05, 0.05])["alignment"]["value"] == pytest.approx(
        0, abs=1e-6
    )


def test_density_detects_centers_clustered_on_fronts():
    random = np.random.default_rng(1)
    near = np.stack([(random.normal(0, 0.02, 200) + random.integers(0, 2, 200) / 2) % 1, random.random(200)], -1)  # fmt: skip
    description = describe(TORUS, near, [0.03, 0.03])
    assert description["density"]["value"] > description["density"]["high"]
    assert description["footprints"]["value"] > description["footprints"]["high"] > 0
    regular = describe(TORUS, REGULAR, [0.03, 0.03])["footprints"]
    assert abs(regular["value"]) < 0.2
    assert description["null"] == "translation"
