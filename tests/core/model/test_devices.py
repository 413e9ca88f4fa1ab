"""A pass on another device than the processor's: no tensor may be left behind.

The device is torch's `meta`, which knows shapes and types and refuses tensors of the processor, as
a GPU does. (Fake CUDA tensors need a torch that was built with CUDA as soon as they are indexed.)
"""

import pytest
import torch

from gpo.model.sites import Sites
from gpo.numerics.trees import with_tensors
from tests.conftest import DOMAINS, make_model, random_points


def test_the_device_refuses_tensors_of_the_processor():
    with pytest.raises(RuntimeError, match="device"):
        torch.ones(3, device="meta") + torch.ones(3)


@pytest.mark.parametrize("asks", [False, True], ids=["sites", "queries"])
@pytest.mark.parametrize("kind", ["torus", "channel", "patch", "cube", "scattered", "masked"])
@pytest.mark.parametrize("variant", ["geometric", "paper"])
def test_a_pass_and_its_backward_pass_stay_on_their_device(variant, kind, asks):
    domain = DOMAINS.get(kind, DOMAINS["channel"])
    model = make_model(domain, variant=variant, num_waves=2)
    coords, weights = random_points(domain, 40), torch.rand(40).double()
    if kind in ("torus", "channel", "cube"):
        coords, weights = domain.grid(*{2: (6, 7), 3: (3, 4, 5)}[domain.dim])
    if kind == "masked":
        weights[::3] = 0
    queries = random_points(domain, 5) if asks else None
    fixed = model.fix(coords, weights=weights, queries=queries)
    there = with_tensors(fixed, lambda tensor: tensor.to("meta"))
    model = model.to("meta")
    values = torch.randn(2, len(coords), 2, dtype=torch.double, device="meta")
    answer = model.run(Sites.at(there, values)).answer
    assert answer.shape == (2, 5 if asks else len(coords), 3)
    answer.sum().backward()
    assert all(parameter.grad.device.type == "meta" for parameter in model.parameters())
