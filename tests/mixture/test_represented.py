"""Gaussians along fronts are told from those across them, and dense ones from even ones."""

import numpy as np
import pytest
import torch

from gpo.data.geometry import Geometry
from gpo_mixture import GaussianMixture
from gpo_mixture.represented import RepresentedField, describe_mixtures

AXIS = np.arange(32) / 32
TORUS = Geometry.rectilinear([AXIS, AXIS], periodic=True)
BOX = Geometry.rectilinear([AXIS, AXIS])
MASKED = BOX.masked(np.random.default_rng(0).random(BOX.num_points) < 0.1)


def front(geometry):
    """A field that changes along x, most at one half: its fronts lie along y."""
    return np.tanh(8 * np.sin(2 * np.pi * geometry.coords[:, :1])) / 8


def gaussians(geometry, centers, scales, angle=0.0):
    turn = torch.tensor([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    covariance = turn @ torch.diag(torch.tensor(scales, dtype=torch.float64) ** 2) @ turn.mT
    count = len(centers)
    return GaussianMixture(
        torch.from_numpy(centers), torch.linalg.cholesky(covariance).expand(count, 2, 2),
        torch.ones(count, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64),
        torch.arange(count), geometry.domain,
    )  # fmt: skip


def told(geometry, centers, scales, angle=0.0):
    mixture = gaussians(geometry, centers, scales, angle)
    field = RepresentedField(mixture, geometry, front(geometry))
    return describe_mixtures([field, field], np.random.default_rng(0))


EVEN = np.stack(np.meshgrid(*[(np.arange(8) + 0.5) / 8] * 2, indexing="ij"), -1).reshape(-1, 2)


@pytest.mark.parametrize("geometry", [TORUS, BOX, MASKED], ids=["torus", "box", "masked"])
def test_long_axes_along_a_front_have_alignment_minus_one_and_across_it_one(geometry):
    along = told(geometry, EVEN, [0.02, 0.1])["alignment"]["value"]
    across = told(geometry, EVEN, [0.1, 0.02])["alignment"]["value"]
    assert (along, across) == pytest.approx((-1, 1), abs=1e-6)
    oblique = told(geometry, EVEN, [0.02, 0.1], np.pi / 4)["alignment"]["value"]
    assert oblique == pytest.approx(0, abs=1e-6)


def test_one_direction_everywhere_is_inside_its_band_where_fronts_have_one_too():
    """A gradient of one direction, moved, has it still: then nothing can be said."""
    found = told(TORUS, EVEN, [0.02, 0.1])["alignment"]
    assert found["low"] <= found["value"] + 1e-6
    assert found["low"] == pytest.approx(-1, abs=1e-6)


def test_round_gaussians_have_no_direction():
    assert told(TORUS, EVEN, [0.05, 0.05])["alignment"]["value"] == pytest.approx(0, abs=1e-6)


def test_centers_on_fronts_are_dense_there_and_even_ones_are_not():
    random = np.random.default_rng(1)
    near = np.stack([(random.normal(0, 0.02, 200) + random.integers(0, 2, 200) / 2) % 1, random.random(200)], -1)  # fmt: skip
    found = told(TORUS, near, [0.03, 0.03])
    assert found["density"]["value"] > found["density"]["high"]
    assert found["footprints"]["value"] > found["footprints"]["high"] > 0
    even = told(TORUS, EVEN, [0.03, 0.03])["footprints"]
    assert abs(even["value"]) < 0.2
    assert found["null"] == "translation"
