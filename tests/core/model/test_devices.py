"""A pass on a device other than the CPU: no tensor may be left behind.

The device is torch's `meta`, which has shapes and types and refuses tensors of the CPU, as
a GPU does. (Fake CUDA tensors need a torch that was built with CUDA as soon as they are indexed.)
"""

import pytest
import torch

from gpo.numerics.trees import with_tensors
from tests.conftest import DOMAINS, make_model, random_points


def test_the_device_refuses_tensors_of_the_cpu():
    with pytest.raises(RuntimeError, match="device"):
        torch.ones(3, device="meta") + torch.ones(3)


@pytest.mark.parametrize("has_queries", [False, True], ids=["sites", "queries"])
@pytest.mark.parametrize("kind", ["torus", "channel", "patch", "cube", "unstructured", "masked"])
@pytest.mark.parametrize("variant", ["waves", "paper"])
def test_a_pass_and_its_backward_pass_stay_on_their_device(variant, kind, has_queries):
    domain = DOMAINS.get(kind, DOMAINS["channel"])
    model = make_model(domain, variant=variant, num_waves=2)
    coords, weights = random_points(domain, 40), torch.rand(40).double()
    if kind in ("torus", "channel", "cube"):
        coords, weights = domain.grid(*{2: (6, 7), 3: (3, 4, 5)}[domain.dim])
    if kind == "masked":
        weights[::3] = 0
    sites = model.sites(coords.new_zeros(1, len(coords), 2).double(), coords, weights)
    geometries = [sites.geometry]
    if has_queries:
        geometries += [points.geometry for points in sites.locate(random_points(domain, 5))]
    moved = with_tensors(geometries, lambda tensor: tensor.to("meta"))
    model = model.to("meta")
    values = torch.randn(2, len(coords), 2, dtype=torch.double, device="meta")
    output = model.run(model.execution.fixed(values, moved[0]))
    field = output.at(moved[1]) if has_queries else output.at_sites()
    assert field.shape == (2, 5 if has_queries else len(coords), 3)
    field.sum().backward()
    assert all(parameter.grad.device.type == "meta" for parameter in model.parameters())
