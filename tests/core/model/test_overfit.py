import pytest
import torch

from gpo import Domain, FieldConfig, GaussianField, GaussianParticleOperator, GeometricConfig
from tests.core.model.overfitting import BATCHES, fit_to_target

NUM_STEPS = 2000


CHANNELS = {"in_channels": 1, "out_channels": 1}


@pytest.mark.thorough
@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES.keys())
def test_a_field_can_be_learned_by_heart(make):
    batch = make()
    field = GaussianField(FieldConfig(**CHANNELS, domain=batch.domain))
    assert fit_to_target(field, batch, batch.values, 1e-2, NUM_STEPS) < 1e-2


@pytest.mark.thorough
@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES.keys())
def test_an_operator_can_be_learned_by_heart(make):
    batch = make()
    model = GaussianParticleOperator(GeometricConfig(**CHANNELS, domain=batch.domain, num_layers=2))
    assert fit_to_target(model, batch, batch.target, 5e-2, NUM_STEPS) < 5e-2


def test_a_fitted_field_answers_between_its_sites():
    """Fitted on a 16 x 16 grid, asked at points it has never seen."""
    domain = Domain.unit_box(2)
    coords, _ = domain.grid(16, 16)

    def truth(points):
        return (torch.sin(3 * points[..., :1]) * torch.cos(2 * points[..., 1:])).unsqueeze(0)

    field = GaussianField(FieldConfig(**CHANNELS, domain=domain))
    optimizer = torch.optim.Adam(field.parameters(), lr=3e-3)
    for _ in range(400):
        optimizer.zero_grad()
        (field(truth(coords), coords) - truth(coords)).square().mean().backward()
        optimizer.step()
    queries = torch.rand(200, 2)
    with torch.no_grad():
        answer = field(truth(coords), coords, queries=queries)
    error = (answer - truth(queries)).norm() / truth(queries).norm()
    assert error < 0.05
