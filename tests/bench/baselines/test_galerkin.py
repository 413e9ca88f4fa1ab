import torch

from gpo_bench.baselines.galerkin import GalerkinTransformer
from tests.bench.baselines.point_models import (
    linear,
    linear_attention_loop,
    make_small,
    norm,
    perceptron,
    random_field,
)


def test_the_model_is_its_specification_line_by_line():
    model = make_small(GalerkinTransformer)
    values, coords = random_field(batch=1)
    sites = torch.cat([coords[0], values[0]], dim=-1)
    z = perceptron(model.lift.layers, sites) + model.lift.placeholder
    for block in model.blocks:
        a, b = norm(block.query_norm, z), norm(block.source_norm, z)
        z = z + linear_attention_loop(block.attention, a, b)
        z = z + perceptron(block.mlp[1], norm(block.mlp[0], z))
    expected = linear(model.out[1], norm(model.out[0], z))
    torch.testing.assert_close(model(values, coords)[0], expected, rtol=1e-10, atol=1e-12)
