"""The operator as plain loops, one site, head and mode at a time, in the order of the paper.

Slow on purpose: this is what the fast code is checked against. It takes the weights of a
built model and shares no computation with it.
"""

import math

import torch
from torch import Tensor, nn

from gpo.model.attention import GaussianAttention
from gpo.model.particles import Particles
from gpo.model.tokens import TokenNetwork
from gpo.numerics.domain import Domain


def reference_basis(particles: Particles, coords: Tensor, domain: Domain) -> Tensor:
    """Evaluates eq. weighted-eval for particles of one sample, `coords` being its sites."""
    rows = []
    for j, site in enumerate(coords):
        row = []
        for i in range(particles.weights.shape[-1]):
            exponent = torch.zeros((), dtype=coords.dtype)
            for axis in range(domain.dim):
                difference = site[axis] - particles.centers[0, j, i, axis]
                if domain.periodic[axis]:
                    length = domain.upper[axis] - domain.lower[axis]
                    images = torch.stack([difference + turn * length for turn in (-2, -1, 0, 1, 2)])
                    difference = images[images.abs().argmin()]
                exponent = exponent - 0.5 * (difference / particles.scales[0, j, i, axis]) ** 2
            row.append(particles.weights[0, j, i] * torch.exp(exponent))
        rows.append(torch.stack(row))
    return torch.stack(rows)


def reference_layer(
    layer: GaussianAttention, basis: Tensor, descriptor: Tensor, weights: Tensor
) -> Tensor:
    """Applies one layer to the basis of one sample, equation by equation.

    Args:
        layer: Where the weights are taken from.
        basis: Z of one sample, sites by Gaussians.
        descriptor: [w, mu, sigma] of one sample, sites by features.
        weights: Quadrature weights of its sites.
    """
    num_sites, num_gaussians = basis.shape
    num_heads, num_modes = layer.coupling.query_key_value.shape[1], layer.windows.num_gaussians
    head_dim = layer.coupling.head_dim
    # What windows and tokens see of the basis: Z, or Z normalised site by site.
    seen = [normalised(row, layer.norm) for row in basis]
    tokens_of, coupled_of, windows_of = [], [], []
    evaluated = [[] for _ in range(num_sites)]
    for head in range(num_heads):
        # Windows (eq. attn-win): project [z, w, mu, sigma], then softmax over modes.
        rows = slice(head * head_dim, (head + 1) * head_dim)
        projection = layer.windows.describe.weight[rows]
        bias = layer.windows.describe.bias[rows]
        windows = []
        for j in range(num_sites):
            hidden = projection @ torch.cat([seen[j], descriptor[j]]) + bias
            shared = head % len(layer.windows.logits)
            logits = [hidden @ layer.windows.logits[shared, :, g] for g in range(num_modes)]
            if layer.windows.bias is not None:
                logits = [logits[g] + layer.windows.bias[shared, g] for g in range(num_modes)]
            exponentials = [torch.exp(logit / layer.windows.temperature) for logit in logits]
            windows.append([value / sum(exponentials) for value in exponentials])
        # Measurement (eq. attn-agg) of projected coefficients s = z W_z.
        tokens = []
        for g in range(num_modes):
            numerator = torch.zeros(head_dim, dtype=basis.dtype)
            denominator = torch.zeros((), dtype=basis.dtype)
            for j in range(num_sites):
                projected = seen[j] @ layer.project[head]
                if layer.project_bias is not None:
                    projected = projected + layer.project_bias[head, 0]
                numerator = numerator + weights[j] * windows[j][g] * projected
                denominator = denominator + weights[j] * windows[j][g]
            name = 0 if layer.names is None else layer.names[head, g]
            tokens.append(numerator / denominator + name)
        # Coupling (eq. attn-qkv to attn-out).
        query, key, value = (
            [token @ layer.coupling.query_key_value[kind, head] for token in tokens]
            for kind in range(3)
        )
        if layer.coupling.bias is not None:
            biases = layer.coupling.bias[:, 0, head, 0]
            query, key, value = (
                [row + bias for row in rows]
                for rows, bias in zip((query, key, value), biases, strict=True)
            )
        coupled = []
        for g in range(num_modes):
            exponentials = [torch.exp(query[g] @ one / math.sqrt(head_dim)) for one in key]
            parts = [
                exponential / sum(exponentials) * one
                for exponential, one in zip(exponentials, value, strict=True)
            ]
            coupled.append(torch.stack(parts).sum(0))
        tokens_of.append(tokens)
        coupled_of.append(coupled)
        windows_of.append(windows)
    if layer.network is not None:
        coupled_of = reference_network(layer.network, tokens_of, coupled_of)
    # Evaluation at the sites (eq. attn-scatter).
    for windows, coupled in zip(windows_of, coupled_of, strict=True):
        for j in range(num_sites):
            evaluated[j].append(
                torch.stack([windows[j][g] * coupled[g] for g in range(num_modes)]).sum(0)
            )
    readout = layer.readout.reshape(num_heads * head_dim, num_gaussians)
    updated = []
    for j in range(num_sites):
        update = torch.cat(evaluated[j]) @ readout
        if layer.readout_bias is not None:
            update = update + layer.readout_bias
        if layer.is_positive:
            update = torch.log(1 + torch.exp(update))
        # Convex residual and row renormalisation (eq. residual, row-renorm).
        blended = (1 - layer.mixing) * basis[j] + layer.mixing * update
        if layer.renormalises:
            blended = blended * basis[j].sum() / blended.sum()
        updated.append(blended)
    return torch.stack(updated)


def normalised(row: Tensor, norm: nn.Module) -> Tensor:
    """Normalises the basis of one site, where a layer does so."""
    if not isinstance(norm, nn.LayerNorm):
        return row
    mean = row.sum() / len(row)
    variance = ((row - mean) ** 2).sum() / len(row)
    return (row - mean) / torch.sqrt(variance + norm.eps) * norm.weight + norm.bias


def reference_network(
    network: TokenNetwork, tokens: list[list[Tensor]], coupled: list[list[Tensor]]
) -> list[list[Tensor]]:
    """Applies output projection and feed-forward to the tokens of one mode after the other."""
    num_heads, head_dim = len(tokens), len(tokens[0][0])
    results = [[] for _ in tokens]
    for g in range(len(tokens[0])):
        before, after = (torch.cat([head[g] for head in part]) for part in (tokens, coupled))
        first = before + network.project.weight @ after + network.project.bias
        wide = network.widen.weight @ first + network.widen.bias
        gate = 0.5 * (1 + torch.erf(wide / math.sqrt(2)))
        result = first + network.narrow.weight @ (wide * gate) + network.narrow.bias
        for head in range(num_heads):
            results[head].append(result[head * head_dim : (head + 1) * head_dim])
    return results
