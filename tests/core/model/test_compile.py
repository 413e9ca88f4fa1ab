import pytest

from tests.processes import finish_forked

SCRIPT = """
import torch
from gpo import Domain, GaussianParticleOperator, OperatorConfig, PaperConfig, Problem

torch.manual_seed(0)
sizes = {"hidden_dim": 16, "num_layers": 1}
if VARIANT == "paper":
    config = PaperConfig(**sizes, num_heads=2, num_gaussians=4)
else:
    config = OperatorConfig(**sizes, num_waves=3)
model = GaussianParticleOperator(Problem(1, 1, Domain.unit_box(2, periodic=True)), config)
values, coords = torch.randn(2, 64, 1), torch.rand(64, 2)
# The transform is fitted to the sites, which is left out of the graph.
compiled = torch.compile(model, fullgraph=VARIANT == "paper", backend=BACKEND)
torch.testing.assert_close(compiled(values, coords), model(values, coords))
compiled(values, coords).square().sum().backward()
assert all(p.grad is not None for p in model.parameters())
"""


@pytest.mark.parametrize("variant", ["paper", "waves"])
@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("aot_eager", marks=pytest.mark.thorough),
        # The same graphs, then translated to C++ and compiled again.
        pytest.param("inductor", marks=pytest.mark.slow),
    ],
)
def test_the_plain_forward_compiles(variant, backend):
    """In a process of its own: the type checks of the test run are not part of the product."""
    finish_forked("-c", f"VARIANT, BACKEND = {variant!r}, {backend!r}\n{SCRIPT}")
