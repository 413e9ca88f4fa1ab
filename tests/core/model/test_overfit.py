import pytest
import torch

from gpo import Domain, GaussianParticleOperator, OperatorConfig, Problem, gaussian_field
from tests.core.model.overfitting import BATCHES, fit_to_target

NUM_STEPS = 2000


@pytest.mark.thorough
@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES.keys())
def test_a_field_overfits_one_batch(make):
    batch = make()
    field = gaussian_field(Problem(1, 1, batch.domain))
    assert fit_to_target(field, batch, batch.values, 1e-2, NUM_STEPS) < 1e-2


@pytest.mark.thorough
@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES.keys())
def test_an_operator_overfits_one_batch(make):
    batch = make()
    model = GaussianParticleOperator(Problem(1, 1, batch.domain), OperatorConfig(num_layers=2))
    assert fit_to_target(model, batch, batch.target, 5e-2, NUM_STEPS) < 5e-2


@pytest.mark.thorough
def test_a_fitted_field_interpolates_between_its_sites():
    """Fitted on a 16 x 16 grid, evaluated at other points."""
    domain = Domain.unit_box(2)
    coords, _ = domain.grid(16, 16)

    def truth(points):
        return (torch.sin(3 * points[..., :1]) * torch.cos(2 * points[..., 1:])).unsqueeze(0)

    field = gaussian_field(Problem(1, 1, domain))
    optimizer = torch.optim.Adam(field.parameters(), lr=3e-3)
    for _ in range(400):
        optimizer.zero_grad()
        (field(truth(coords), coords) - truth(coords)).square().mean().backward()
        optimizer.step()
    queries = torch.rand(200, 2)
    with torch.no_grad():
        output = field(truth(coords), coords, queries=queries)
    error = (output - truth(queries)).norm() / truth(queries).norm()
    assert error < 0.05
