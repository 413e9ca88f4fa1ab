import pytest
import torch
from torch.nn.functional import gelu

from gpo_bench.baselines.gnot import GNOT
from tests.bench.baselines.point_models import (
    linear,
    linear_attention_loop,
    make_small,
    norm,
    perceptron,
    random_field,
    softmax,
)


def experts_loop(experts, tokens, gate):
    hidden = experts.up.out_features // experts.num_experts
    answer = torch.zeros_like(tokens)
    for n, token in enumerate(tokens):
        for e in range(experts.num_experts):
            rows = slice(e * hidden, (e + 1) * hidden)
            inner = gelu(experts.up.weight[rows] @ token + experts.up.bias[rows])
            answer[n] += gate[n, e] * (experts.down.weight[:, rows] @ inner + experts.bias[e])
    return answer


def expert_block_loop(block, x, y, coords):
    first, _, second, _, third, _ = block.gate
    inner = gelu(linear(first, coords))
    inner = gelu(linear(second, inner))
    gate = torch.stack([softmax(row) for row in linear(third, inner)])
    x = x + linear_attention_loop(
        block.cross_attention, norm(block.query_norm, x), norm(block.source_norm, y)
    )
    x = x + norm(block.first_norm, experts_loop(block.first_experts, x, gate))
    a = norm(block.self_norm, x)
    x = x + linear_attention_loop(block.self_attention, a, a)
    return x + norm(block.second_norm, experts_loop(block.second_experts, x, gate))


@pytest.mark.parametrize("official_flow", [True, False])
def test_the_model_is_its_specification_line_by_line(official_flow):
    model = make_small(GNOT, official_flow=official_flow)
    values, coords = random_field(batch=1)
    geometry = perceptron(model.lift_geometry, coords[0])
    sites = torch.cat([coords[0], values[0]], dim=-1)
    physics = perceptron(model.lift_physics.layers, sites) + model.lift_physics.placeholder
    first, second = model.blocks
    answer = expert_block_loop(first, geometry, physics, coords[0])
    if official_flow:
        answer = expert_block_loop(second, answer, physics, coords[0])
    else:
        answer = expert_block_loop(second, geometry, answer, coords[0])
    expected = perceptron(model.out, answer)
    torch.testing.assert_close(model(values, coords)[0], expected, rtol=1e-10, atol=1e-12)
