import math

import torch
from torch.nn.functional import gelu

from gpo_bench.baselines.lno import LNO
from tests.bench.baselines.point_models import (
    linear,
    make_small,
    norm,
    perceptron,
    random_field,
    softmax,
)


def residual(mlp, tokens):
    hidden = gelu(linear(mlp.lift, tokens))
    for layer in mlp.layers:
        hidden = hidden + gelu(linear(layer, hidden))
    return linear(mlp.out, hidden)


def attention_loop(block, modes):
    """One sample, one head after the other, one mode after the other."""
    num_heads, channels = block.head_shape
    query, key, value = linear(block.query_key_value, modes).chunk(3, dim=-1)
    merged = torch.zeros_like(modes)
    for head in range(num_heads):
        columns = slice(head * channels, (head + 1) * channels)
        for m in range(len(modes)):
            scores = [query[m, columns] @ k / math.sqrt(channels) for k in key[:, columns]]
            merged[m, columns] = softmax(scores) @ value[:, columns]
    return linear(block.attended, merged)


def test_the_model_is_its_specification_line_by_line():
    model = make_small(LNO)
    values, coords = random_field(batch=1)
    trunk = residual(model.trunk, coords[0])
    branch = residual(model.branch, torch.cat([coords[0], values[0]], dim=-1))
    scores = residual(model.scores, trunk)
    z = torch.stack([softmax(column) @ branch for column in scores.T])
    for block in model.blocks:
        z = z + attention_loop(block, norm(block.norm, z))
        z = z + perceptron(block.mlp[1], norm(block.mlp[0], z))
    decoded = torch.stack([softmax(row) @ z for row in scores])
    expected = residual(model.out, decoded)
    torch.testing.assert_close(model(values, coords)[0], expected, rtol=1e-10, atol=1e-12)


def test_two_samples_on_the_same_sites_do_not_mix():
    model = make_small(LNO)
    values, coords = random_field()
    together = model(values, coords)
    for sample in range(2):
        alone = model(values[sample : sample + 1], coords[sample : sample + 1])
        torch.testing.assert_close(together[sample], alone[0], rtol=1e-10, atol=1e-12)
