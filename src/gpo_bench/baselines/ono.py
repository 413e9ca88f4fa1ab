r"""ONO, the Orthogonal Neural Operator of Xiao et al. (2024).

One stream learns functions $\psi$, which a Cholesky factor of their covariance makes orthonormal
over the data. They define a kernel that updates the other stream,
$u+\psi\,\mathrm{diag}(\mu)\,\psi^\top u$.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from gpo.model.problem import Problem
from gpo_bench.baselines.base import AbstractBaseline, Perceptron
from gpo_bench.baselines.transformer import (
    AbstractTransformerConfig,
    FeedForward,
    Lift,
    initialise,
    num_site_features,
    site_features,
)

MOMENTUM = 0.1
"""Weight of the latest batch in the running covariance."""
FIRST_JITTER, NUM_JITTERS = 1e-6, 10
"""Smallest value added to the diagonal if the Cholesky factorisation fails, and tenfold retries."""


@dataclass(frozen=True, kw_only=True)
class ONOConfig(AbstractTransformerConfig):
    """Architecture of an `ONO`; the defaults have 1,596,673 parameters, as in the paper's table."""

    psi_dim: int = 8
    """Number of orthogonal functions per block."""


class ONO(AbstractBaseline):
    """Maps fields on any points.

    In training, the functions are orthonormal over the batch; in evaluation, over a running average
    of the training batches, which is saved with the weights.

    Args:
        problem: Channels and geometry.
        config: The architecture.
    """

    def __init__(self, problem: Problem, config: ONOConfig = ONOConfig()) -> None:
        super().__init__(problem)
        width, hidden = config.width, config.hidden
        self.lift_features = Perceptron(num_site_features(problem), 2 * width, width)
        self.lift_field = Lift(problem, width)
        readouts = [Perceptron(width, hidden, width) for _ in range(config.num_layers - 1)]
        self.blocks = nn.ModuleList(
            OrthogonalBlock(config, readout)
            for readout in [*readouts, nn.Linear(width, problem.out_channels)]
        )
        initialise(self)

    def predict(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "batch points dim"],
        is_active: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the prediction for validated input."""
        sites = site_features(values, coords, is_active)
        features, field = self.lift_features(sites), self.lift_field(sites)
        for block in self.blocks:
            features, field = block(features, field, is_active)
        return field


class OrthogonalBlock(nn.Module):
    """A Transformer block on the features, then a kernel update of the field and a readout."""

    def __init__(self, config: ONOConfig, readout: nn.Module) -> None:
        super().__init__()
        width, psi_dim = config.width, config.psi_dim
        self.norm = nn.LayerNorm(width)
        self.attention = PointAttention(config.head_shape)
        self.mlp = FeedForward(width, config.hidden)
        self.psi = nn.Linear(width, psi_dim)
        self.orthogonalise = Orthogonalisation(psi_dim)
        self.spectrum = nn.Parameter(torch.zeros(psi_dim))
        self.readout = nn.Sequential(nn.LayerNorm(width), readout)

    def forward(
        self,
        features: Float[Tensor, "batch points width"],
        field: Float[Tensor, "batch points width"],
        is_active: Bool[Tensor, "batch points"],
    ) -> tuple[Float[Tensor, "batch points width"], Float[Tensor, "batch points out"]]:
        """Returns the updated features and field; the readout has no residual connection."""
        features = features + self.attention(self.norm(features), is_active)
        features = features + self.mlp(features)
        psi = self.psi(features)
        # In half precision the Cholesky factorisation fails, and sums over sites overflow.
        with torch.autocast(psi.device.type, enabled=False):
            psi = self.orthogonalise(psi.to(_precise(psi)), is_active)
            field = field.to(psi.dtype)
            coefficients = psi.mT @ field
            field = field + (psi * softplus(self.spectrum)) @ coefficients
        return features, self.readout(field.to(self.spectrum.dtype))


class PointAttention(nn.Module):
    r"""$O = Q(K^\top V)/\sqrt d$ with a softmax of $Q$ over features and of $K$ over points."""

    def __init__(self, head_shape: tuple[int, int]) -> None:
        super().__init__()
        self.head_shape = head_shape
        width = head_shape[0] * head_shape[1]
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(
        self, tokens: Float[Tensor, "batch points width"], is_active: Bool[Tensor, "batch points"]
    ) -> Float[Tensor, "batch points width"]:
        """Returns the attention output at each point; masked points do not contribute."""
        projected = self.query_key_value(tokens).unflatten(-1, (3, *self.head_shape))
        query, key, value = projected.unbind(-3)
        query = torch.softmax(query, dim=-1) * self.head_shape[-1] ** -0.5
        key = torch.softmax(key.masked_fill(~is_active[..., None, None], -torch.inf), dim=1)
        key_value = torch.einsum("bnhc,bnhd->bhcd", key, value)
        return self.out(torch.einsum("bnhc,bhcd->bnhd", query, key_value).flatten(-2))


class Orthogonalisation(nn.Module):
    r"""$\psi L^{-\top}$ with $LL^\top=C=\frac1{BN}\sum_{bn}\psi\psi^\top$, of unit covariance."""

    covariance: Tensor
    has_covariance: Tensor

    def __init__(self, psi_dim: int) -> None:
        super().__init__()
        self.register_buffer("covariance", torch.zeros(psi_dim, psi_dim))
        self.register_buffer("has_covariance", torch.tensor(False))

    def forward(
        self, psi: Float[Tensor, "batch points psi"], is_active: Bool[Tensor, "batch points"]
    ) -> Float[Tensor, "batch points psi"]:
        """Returns orthonormal functions, zero at masked sites; training updates the covariance."""
        psi = psi * is_active.unsqueeze(-1)
        flat = psi.flatten(0, 1)
        covariance = flat.mT @ flat / is_active.sum()
        if self.training:
            self._update_average(covariance.detach())
        else:
            # Without any training batch, the covariance is that of the input.
            average = self.covariance.to(covariance.dtype)
            covariance = torch.where(self.has_covariance, average, covariance)
        factor = safe_cholesky(covariance)
        return torch.linalg.solve_triangular(factor.mT, flat, upper=True, left=False).view_as(psi)

    @torch.no_grad()
    def _update_average(self, covariance: Tensor) -> None:
        covariance = covariance.to(self.covariance.dtype)
        averaged = torch.lerp(self.covariance, covariance, MOMENTUM)
        self.covariance.copy_(torch.where(self.has_covariance, averaged, covariance))
        self.has_covariance.fill_(True)


def safe_cholesky(covariance: Float[Tensor, "psi psi"]) -> Float[Tensor, "psi psi"]:
    """Returns the lower Cholesky factor, with the smallest jitter for which it exists.

    The factor of a non-finite matrix is NaN, which makes the loss NaN.
    """
    jitters = [0.0, *(FIRST_JITTER * 10**power for power in range(NUM_JITTERS))]
    identity = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    for jitter in jitters:
        factor, info = torch.linalg.cholesky_ex(covariance + jitter * identity)
        if bool((info == 0) & factor.isfinite().all()):
            return factor
    return torch.full_like(covariance, torch.nan)


def _precise(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)
