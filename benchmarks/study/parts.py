"""Other parts around the particles: a lift with an MLP, and particles that learn faster.

    python benchmarks/study/parts.py VARIANT train ns2d --preset quick --coarsen 2 --noise 0 \
        --budget-cpu 60 --epochs 100000 --patience 100000 --out runs/VARIANT

What follows the variant is a command of `gpo`. Scores are those on validation data.
"""

import sys

import torch
from torch import nn
from torch.nn.functional import gelu

from gpo.cli import main
from gpo.model import geometric
from gpo.model.ablation import Ablation
from gpo.model.chunks import Chunk
from gpo.model.config import GeometricConfig
from gpo.model.encoder import describe_sites
from gpo.model.geometric import GeometricLift
from gpo.model.layer import Lifted, State
from gpo.training.module import TrainingModule

FASTER = 3.0
"""How much faster than other parameters those of particles learn."""


class MLPLift(GeometricLift):
    r"""$h=W[a,\gamma(x)]+V\,\mathrm{GELU}(U[a,\gamma(x)])$."""

    def __init__(self, config: GeometricConfig) -> None:
        super().__init__(config)
        num_inputs = config.in_channels + self.features.num_features
        self.first = nn.Linear(num_inputs, config.hidden_dim)
        self.second = nn.Linear(config.hidden_dim, config.hidden_dim)

    def forward(self, chunk: Chunk, ablation: Ablation = Ablation()) -> Lifted:
        """Returns the state that values and positions make."""
        sites = describe_sites(self.features, chunk.values, chunk.coords)
        bent = self.second(gelu(sites.project(self.first)))
        state = sites.project(self.linear) + bent
        return Lifted(State(state.transpose(0, 1).contiguous()), None)


def use_mlp_lift() -> None:
    """Puts an MLP beside the linear lift."""
    geometric.GeometricLift = MLPLift


def let_particles_learn_faster() -> None:
    """Gives what particles are read off, and what they bring, a larger learning rate."""

    def configure_optimizers(self: TrainingModule) -> torch.optim.Optimizer:
        named = list(self.named_parameters())
        parts = [[p for name, p in named if (".transport." in name) == moves] for moves in (0, 1)]
        groups = [{"params": part} for part in parts]
        decay = self.config.optimizer.weight_decay
        return torch.optim.AdamW(groups, lr=self.config.learning_rate, weight_decay=decay)

    def on_train_batch_start(self: TrainingModule, batch: object, batch_idx: int) -> None:
        rate = self.budget.learning_rate(self.global_step, self.progress)
        slow, fast = self.trainer.optimizers[0].param_groups
        slow["lr"], fast["lr"] = rate, FASTER * rate

    TrainingModule.configure_optimizers = configure_optimizers
    TrainingModule.on_train_batch_start = on_train_batch_start


VARIANTS = {"mlp-lift": use_mlp_lift, "faster": let_particles_learn_faster}

if __name__ == "__main__":
    VARIANTS[sys.argv[1]]()
    torch.set_num_threads(1)
    main(sys.argv[2:])
