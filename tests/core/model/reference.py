"""The operator as plain loops, one site, head and mode at a time, in the order of the paper.

Slow on purpose: this is what the fast code is checked against. It takes the weights of a
built model and shares no computation with it.
"""

import math

import torch
from torch import Tensor

from gpo.model.attention import GaussianAttention
from gpo.model.particles import Particles
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
    num_heads, head_dim, num_modes = layer.windows.logits.shape
    evaluated = [[] for _ in range(num_sites)]
    for head in range(num_heads):
        # Windows (eq. attn-win): project [z, w, mu, sigma], then softmax over modes.
        rows = slice(head * head_dim, (head + 1) * head_dim)
        projection = layer.windows.describe.weight[rows]
        bias = layer.windows.describe.bias[rows]
        windows = []
        for j in range(num_sites):
            hidden = projection @ torch.cat([basis[j], descriptor[j]]) + bias
            exponentials = [
                torch.exp(hidden @ layer.windows.logits[head, :, g]) for g in range(num_modes)
            ]
            windows.append([value / sum(exponentials) for value in exponentials])
        # Measurement (eq. attn-agg) of projected coefficients s = z W_z.
        tokens = []
        for g in range(num_modes):
            numerator = torch.zeros(head_dim, dtype=basis.dtype)
            denominator = torch.zeros((), dtype=basis.dtype)
            for j in range(num_sites):
                numerator = numerator + weights[j] * windows[j][g] * (
                    basis[j] @ layer.project[head]
                )
                denominator = denominator + weights[j] * windows[j][g]
            tokens.append(numerator / denominator)
        # Coupling (eq. attn-qkv to attn-out).
        query, key, value = layer.coupling.query_key_value[:, head]
        coupled = []
        for g in range(num_modes):
            exponentials = [
                torch.exp((tokens[g] @ query) @ (token @ key) / math.sqrt(head_dim))
                for token in tokens
            ]
            parts = [
                exponential / sum(exponentials) * (token @ value)
                for exponential, token in zip(exponentials, tokens, strict=True)
            ]
            coupled.append(torch.stack(parts).sum(0))
        # Evaluation at the sites (eq. attn-scatter).
        for j in range(num_sites):
            evaluated[j].append(
                torch.stack([windows[j][g] * coupled[g] for g in range(num_modes)]).sum(0)
            )
    readout = layer.readout.reshape(num_heads * head_dim, num_gaussians)
    updated = []
    for j in range(num_sites):
        update = torch.cat(evaluated[j]) @ readout
        if not layer.signed_readout:
            update = torch.log(1 + torch.exp(update))
        # Convex residual and row renormalisation (eq. residual, row-renorm).
        blended = (1 - layer.mixing) * basis[j] + layer.mixing * update
        if layer.renormalises:
            blended = blended * basis[j].sum() / blended.sum()
        updated.append(blended)
    return torch.stack(updated)
