import math

import pytest
import torch

from gpo.interpretation.reconstruction import superposition
from gpo.numerics import superposition as module
from tests.conftest import random_points


def test_what_all_carry_alike_is_found_everywhere(domain):
    centers = random_points(domain, 50)
    ones = torch.ones(50, dtype=torch.double)
    found = superposition(
        random_points(domain, 9), centers, 0.5 * torch.ones_like(centers), ones, 3 * ones[:, None], domain
    )  # fmt: skip
    torch.testing.assert_close(found, torch.full((9, 1), 3.0, dtype=torch.double))


def test_two_gaussians_share_a_point_by_their_heights(domain, monkeypatch):
    monkeypatch.setattr(module, "MOST_NUMBERS", 1)
    centers, points = random_points(domain, 2), random_points(domain, 3)
    scales, weights = torch.full_like(centers, 0.7), torch.tensor([0.2, 0.5]).double()
    found = superposition(points, centers, scales, weights, torch.tensor([[1.0], [5.0]]).double(), domain)  # fmt: skip
    for point, value in zip(points, found, strict=True):
        heights = [
            weight * math.exp(-0.5 * float((domain.offset(point, center) / 0.7).square().sum()))
            for weight, center in zip(weights.tolist(), centers, strict=True)
        ]
        assert float(value) == pytest.approx((heights[0] + 5 * heights[1]) / sum(heights))
