"""The operator as plain loops, one site, head and mode at a time, in the order of the paper.

Slow on purpose: this is what the fast code is checked against. It takes the weights of a
built model and shares no computation with it.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from gpo.model.attention import GaussianAttention
from gpo.model.config import PaperConfig
from gpo.model.encoder import AbstractEncoder, MLPEncoder, ParticleEncoder
from gpo.model.operator import GaussianParticleOperator
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


def reference_operator(
    model: GaussianParticleOperator, config: PaperConfig, values: Tensor, coords: Tensor
) -> Tensor:
    """Applies encoder, layers and decoder to one sample, whose sites have equal weights."""
    encoder, domain = model.lift.encoder, model.problem.domain
    if not config.nearest_images:
        domain = replace(domain, periodic=(False,) * domain.dim)
    position = [reference_position(encoder, config, site, domain) for site in coords]
    eta = [torch.cat(pair) for pair in zip(values, position, strict=True)]
    if isinstance(encoder, MLPEncoder):
        basis = torch.stack([softplus(chain(encoder.layers, row)) for row in eta])
        descriptor = [row[:0] for row in basis]
    else:
        pairs = zip(eta, coords, strict=True)
        parts = [reference_particles(encoder, config, *pair, domain) for pair in pairs]
        particles = Particles(
            *(torch.stack(part).unsqueeze(0) for part in zip(*parts, strict=True))
        )
        basis = reference_basis(particles, coords, domain)
        descriptor = [reference_descriptor(*part, domain) for part in parts]
    if config.places_windows:
        descriptor = [torch.cat(pair) for pair in zip(descriptor, position, strict=True)]
    weights = torch.full((len(coords),), 1 / len(coords), dtype=coords.dtype)
    for layer in model.applied_layers:
        basis = reference_layer(layer, basis, torch.stack(descriptor), weights)
    return torch.stack([chain(model.decoder.layers, row) for row in basis])


def reference_position(
    encoder: AbstractEncoder, config: PaperConfig, site: Tensor, domain: Domain
) -> Tensor:
    """Describes where a site is: Fourier features, an MLP or nothing, and its coordinates."""
    features = encoder.features.features if config.input_coordinates else encoder.features
    unit, parts = in_unit_lengths(site, domain), [site[:0]]
    if config.features == "fourier":
        angles = [2 * math.pi * sum(row * unit) for row in features.frequencies]
        parts = [torch.stack([wave(angle) for angle in angles]) for wave in (torch.sin, torch.cos)]
    elif config.features == "mlp":
        wide = chain(features.layers[:1], on_circles(unit, domain))
        parts = [chain(features.layers[2:], wide * 0.5 * (1 + torch.erf(wide / math.sqrt(2))))]
    return torch.cat([*parts, unit] if config.input_coordinates else parts)


def reference_particles(
    encoder: ParticleEncoder, config: PaperConfig, eta: Tensor, site: Tensor, domain: Domain
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns centers, scales and weights of a site (section 2.1), from [a, gamma(x)]."""
    phi = torch.relu(encoder.lift.weight @ eta + encoder.lift.bias)
    centers, scales, weights = (
        head.out.weight @ torch.relu(head.hidden.weight @ phi + head.hidden.bias) + head.out.bias
        for head in (encoder.centers, encoder.scales, encoder.weights)
    )
    lengths, shape = unit_lengths(domain, site), (config.num_gaussians, domain.dim)
    scales = (softplus(scales).reshape(shape) + 1e-4) * lengths
    if config.centers == "displacement":
        centers = site + 2 * torch.tanh(centers.reshape(shape)) * scales
    else:
        centers = centers.reshape(shape) * lengths + site - in_unit_lengths(site, domain) * lengths
    if domain.is_sphere:
        centers = torch.stack([row / (row * row).sum().sqrt() for row in centers])
    return centers, scales, torch.exp(weights) / torch.exp(weights).sum()


def reference_descriptor(
    centers: Tensor, scales: Tensor, weights: Tensor, domain: Domain
) -> Tensor:
    """Returns [w, mu, sigma] of a site in unit lengths; periodic axes are circles."""
    centers = torch.cat([on_circles(in_unit_lengths(row, domain), domain) for row in centers])
    return torch.cat([weights, centers, (scales / unit_lengths(domain, scales)).flatten()])


def unit_lengths(domain: Domain, like: Tensor) -> Tensor:
    """Returns the sides of a box; on a sphere half the largest of them, for all axes."""
    sides = [high - low for low, high in zip(domain.lower, domain.upper, strict=True)]
    return torch.tensor([max(sides) / 2] * 3 if domain.is_sphere else sides, dtype=like.dtype)


def in_unit_lengths(point: Tensor, domain: Domain) -> Tensor:
    """Returns a point in unit lengths from the corner of a box, or from the middle of a patch."""
    origin = torch.tensor(domain.lower, dtype=point.dtype)
    if domain.is_sphere:
        origin = (origin + torch.tensor(domain.upper, dtype=point.dtype)) / 2
    return (point - origin) / unit_lengths(domain, point)


def on_circles(unit: Tensor, domain: Domain) -> Tensor:
    """Returns a point with every periodic axis as a point on a circle of length one."""
    parts: list[Tensor] = []
    for along, is_periodic in zip(unit, domain.periodic, strict=True):
        angle = 2 * math.pi * along
        circle = [torch.cos(angle) / (2 * math.pi), torch.sin(angle) / (2 * math.pi)]
        parts += circle if is_periodic else [along]
    return torch.stack(parts)


def softplus(row: Tensor) -> Tensor:
    """Returns log(1 + exp(x))."""
    return torch.log(1 + torch.exp(row))


def chain(layers: nn.Sequential, row: Tensor) -> Tensor:
    """Applies linear maps, with the ReLUs between them, to one site."""
    for layer in layers:
        is_linear = isinstance(layer, nn.Linear)
        row = layer.weight @ row + layer.bias if is_linear else row.clamp(min=0)
    return row


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
            windows.append(softmax([logit / layer.windows.temperature for logit in logits]))
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
            shares = softmax([query[g] @ one / math.sqrt(head_dim) for one in key])
            parts = [share * one for share, one in zip(shares, value, strict=True)]
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


def softmax(logits: list[Tensor]) -> list[Tensor]:
    """Returns exp(x) over its sum, divided by the largest: a row that nearly cancels is large."""
    largest = max(logit.detach() for logit in logits)
    exponentials = [torch.exp(logit - largest) for logit in logits]
    return [one / sum(exponentials) for one in exponentials]


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
