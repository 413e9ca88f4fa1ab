"""Point models small enough to check number by number, with weights large enough to matter."""

from dataclasses import replace

import torch
from torch import nn
from torch.nn.functional import gelu, layer_norm

from gpo import Domain
from gpo.model.problem import Problem
from gpo_bench.baselines.galerkin import GalerkinConfig, GalerkinTransformer
from gpo_bench.baselines.gnot import GNOT, GNOTConfig
from gpo_bench.baselines.lno import LNO, LNOConfig
from gpo_bench.baselines.ono import ONO, ONOConfig
from gpo_bench.baselines.transolver import Transolver, TransolverConfig

SIZES = {"width": 8, "num_layers": 2, "num_heads": 2}
SMALL = {
    GalerkinTransformer: GalerkinConfig(**SIZES),
    GNOT: GNOTConfig(**SIZES),
    Transolver: TransolverConfig(**SIZES, num_slices=5),
    ONO: ONOConfig(**SIZES, psi_dim=3),
    LNO: LNOConfig(**SIZES, num_modes=6),
}


def make_problem(dim=2, grid_shape=()):
    return Problem(2, 3, Domain.unit_box(dim), grid_shape)


def strengthen(model):
    """Returns the model in double precision, every number of it drawn anew and none of them tiny."""
    model = model.double()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.weight.normal_(std=1.5 * module.in_features**-0.5)
            elif isinstance(module, nn.LayerNorm):
                module.weight.uniform_(0.5, 1.5)
        for name, parameter in model.named_parameters():
            if "bias" in name or "spectrum" in name:
                parameter.normal_(std=0.3)
            if "temperature" in name:
                parameter.uniform_(0.3, 1.0)
    return model


def make_small(model_class, problem=None, **changes):
    """A model of two blocks and two heads."""
    config = replace(SMALL[model_class], **changes)
    return strengthen(model_class(problem or make_problem(), config))


def random_field(batch=2, points=7, problem=None):
    """Random values at random sites."""
    problem = problem or make_problem()
    values = torch.randn(batch, points, problem.in_channels, dtype=torch.float64)
    return values, torch.rand(batch, points, problem.domain.dim, dtype=torch.float64)


def softmax(numbers):
    """The definition, for a list of numbers."""
    exponentials = [torch.exp(number) for number in numbers]
    return torch.stack(exponentials) / sum(exponentials)


def all_active(values):
    return torch.ones(values.shape[:2], dtype=torch.bool)


def norm(layer, tokens):
    return layer_norm(tokens, tokens.shape[-1:], layer.weight, layer.bias)


def linear(layer, tokens):
    return tokens @ layer.weight.T + layer.bias


def perceptron(layers, tokens):
    first, _, last = layers
    return linear(last, gelu(linear(first, tokens)))


def linear_attention_loop(layer, queries, sources):
    """One sample, one head after the other, a weight between every pair of points."""
    num_points, width = queries.shape
    num_heads, channels = layer.head_shape
    key_weight, value_weight = layer.key_value.weight.split(width)
    key_bias, value_bias = layer.key_value.bias.split(width)
    merged = torch.zeros(num_points, width, dtype=queries.dtype)
    for head in range(num_heads):
        rows = slice(head * channels, (head + 1) * channels)
        query = [softmax(layer.query.weight[rows] @ x + layer.query.bias[rows]) for x in queries]
        key = [softmax(key_weight[rows] @ y + key_bias[rows]) for y in sources]
        value = [value_weight[rows] @ y + value_bias[rows] for y in sources]
        for i in range(num_points):
            affinity = [query[i] @ k for k in key]
            divisor = num_points if layer.divisor == "count" else sum(affinity)
            terms = [a / divisor * v for a, v in zip(affinity, value, strict=True)]
            merged[i, rows] = sum(terms) + query[i]
    return linear(layer.out, merged)
