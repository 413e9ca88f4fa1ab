r"""The optimizers of training: AdamW, and Muon, which orthogonalises the updates of matrices.

The momentum of a matrix's gradient $G$ is $B\leftarrow B+(1-\mu)(G-B)$, and $X=G+\mu(B-G)$
(Nesterov). Divided by its norm, $X$ goes through five Newton-Schulz iterations,
$X\leftarrow aX+(bQ+cQ^2)X$ with $Q=XX^\top$, which move all its singular values near one, so that
every direction of the matrix is learned at the same pace. The update of an $m\times n$ matrix has
the root mean square that is usual for AdamW, so that one learning rate $\eta$ serves both:

$W\leftarrow(1-\eta\lambda)W-0.2\,\eta\sqrt{\max(m,n)}\,X$.

This is `torch.optim.Muon(adjust_lr_fn="match_rms_adamw")` with two differences. Matrices of one
shape are iterated together, because separate products of matrices as small as ours take up to three
times as long. The iterations have the precision of the parameters, not bfloat16, which takes 1.5 to
5 times as long on a CPU for 32 channels (`benchmarks/study/optimizer.py`).
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from gpo.training.config import RunConfig

MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""a, b and c. Singular values of at least 0.3 % of the norm end between 0.68 and 1.21."""
NUM_ITERATIONS = 5
EPS = 1e-7
"""Minimum norm by which a matrix is divided."""
RMS = 0.2
"""Root mean square of an update at a learning rate of one."""
MIN_SIDE = 8
"""Minimum number of rows and columns; AdamW updates thinner matrices."""


def make_optimizer(model: nn.Module, config: RunConfig) -> Optimizer:
    """Returns the optimizer of a run for the parameters of a model."""
    parameters = list(model.parameters())
    # The fused kernel supports neither complex weights nor our scaled gradients.
    is_real = not any(weights.is_complex() for weights in parameters)
    settings: dict[str, Any] = {
        "lr": config.learning_rate,
        "weight_decay": config.optimizer.weight_decay,
        "fused": is_real and config.optimizer.precision == "32-true",
    }
    matrices = muon_matrices(model) if config.optimizer_name == "muon" else []
    if not matrices:
        return AdamW(parameters, **settings)
    chosen = {id(matrix) for matrix in matrices}
    return Muon(matrices, [one for one in parameters if id(one) not in chosen], **settings)


def muon_matrices(model: nn.Module) -> list[nn.Parameter]:
    """Returns the matrices that Muon updates: real, not thin, and not left to AdamW by a module.

    A module leaves matrices to AdamW by their names in its attribute `adamw_parameters`.
    """
    excluded = {
        id(getattr(module, name))
        for module in model.modules()
        for name in getattr(module, "adamw_parameters", ())
    }
    return [
        weights
        for weights in model.parameters()
        if weights.ndim == 2
        and min(weights.shape) >= MIN_SIDE
        and not weights.is_complex()
        and id(weights) not in excluded
    ]


class Muon(Optimizer):
    """Updates matrices by Muon and other parameters by AdamW."""

    def __init__(
        self,
        matrices: Sequence[nn.Parameter],
        others: Sequence[nn.Parameter],
        *,
        lr: float,
        weight_decay: float,
        fused: bool,
    ) -> None:
        """Makes an optimizer with one group of parameters for each method.

        Args:
            matrices: Real matrices.
            others: All other parameters.
            lr: Learning rate of both methods.
            weight_decay: Weight decay of both methods.
            fused: Whether to use the fused kernel of AdamW.
        """
        groups = [{"params": list(matrices)}, {"params": list(others)}]
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay})
        self._adamw = AdamW([self.param_groups[1]], fused=fused)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Takes a step; parameters without a gradient stay as they are."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._step_matrices(self.param_groups[0])
        # There is one state. A loaded one replaces it, and the groups.
        self._adamw.state, self._adamw.param_groups = self.state, self.param_groups[1:]
        self._adamw.step()
        return loss

    def _step_matrices(self, group: dict[str, Any]) -> None:
        rate, decay = group["lr"], group["lr"] * group["weight_decay"]
        by_shape: dict[tuple[int, ...], list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for matrix in group["params"]:
            if matrix.grad is not None:
                momentum = self._momentum(matrix).lerp_(matrix.grad, 1 - MOMENTUM)
                direction = matrix.grad.lerp(momentum, MOMENTUM)
                # Tall matrices are transposed, so that Q is the smaller of the two products.
                is_tall = len(matrix) > matrix.shape[1]
                pair = (matrix.mT, direction.mT) if is_tall else (matrix, direction)
                by_shape[pair[0].shape].append(pair)
        for (_, columns), pairs in by_shape.items():
            updates = orthogonalised(torch.stack([direction for _, direction in pairs]))
            for (matrix, _), update in zip(pairs, updates, strict=True):
                matrix.mul_(1 - decay).add_(update, alpha=-RMS * columns**0.5 * rate)

    def _momentum(self, matrix: Tensor) -> Tensor:
        """Returns the momentum of a matrix, zero at the start."""
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        return state["momentum_buffer"]


def orthogonalised(
    matrices: Float[Tensor, "matrices rows columns"],
) -> Float[Tensor, "matrices rows columns"]:
    r"""Returns matrices with the same singular vectors and singular values near one.

    Each is divided by its norm, then $X\leftarrow aX+(bQ+cQ^2)X$ with $Q=XX^\top$, five times.
    """
    a, b, c = COEFFICIENTS
    norms = torch.linalg.vector_norm(matrices, dim=(1, 2), keepdim=True)
    matrices = matrices / norms.clamp(min=EPS)
    for _ in range(NUM_ITERATIONS):
        products = torch.bmm(matrices, matrices.mT)
        factors = torch.baddbmm(products, products, products, beta=b, alpha=c)
        matrices = torch.baddbmm(matrices, factors, matrices, beta=a)
    return matrices
