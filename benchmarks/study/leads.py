"""The lead as an input: one model for several leads, beside a model for each.

    python benchmarks/study/leads.py ns2d.mat --leads 1 2 3 --seconds 120

The model gets the lead as one more value at every site and predicts the change over it. Scores are
relative L2 on validation trajectories, for every lead; `steps` is the model rolled out with its
shortest lead. Equal CPU seconds of one thread, 32 x 32 sites, 6e-3 with a cosine, batches of 8.
"""

import math
from pathlib import Path
from time import process_time

import torch
import tyro
from torch import Tensor
from tyro.conf import Positional

from gpo import GaussianParticleOperator, OperatorConfig, Problem, coarsen, open_data, relative_l2

RATE, WARM_UP, BATCH = 6e-3, 50, 8
VALIDATION = slice(52, 58)
"""Trajectories, as `gpo train ns2d --preset quick` splits them."""


class LeadModel:
    """A model of a field and a lead, in units of the training data."""

    def __init__(self, data: Path, seed: int) -> None:
        """Reads the trajectories and makes an untrained model."""
        series = coarsen(open_data(data), 2)
        geometry = series.geometry()
        frames = [series.frames(number, slice(None)) for number in range(series.num_samples)]
        fields = torch.stack([torch.as_tensor(one).float() for one in frames])
        mean, std = fields[: VALIDATION.start].mean(), fields[: VALIDATION.start].std()
        self.fields = (fields - mean) / std
        self.offset = float(mean / std)
        self.coords = torch.as_tensor(geometry.coords).float()
        torch.manual_seed(seed)
        self.model = GaussianParticleOperator(
            Problem(2, 1, geometry.domain), OperatorConfig(num_waves=12)
        )

    def __call__(self, state: Tensor, lead: Tensor) -> Tensor:
        """Returns the field after a lead, one for every sample."""
        told = lead.view(-1, 1, 1).expand_as(state)
        return state + self.model(torch.cat([state, told], -1), self.coords)

    def fit(self, leads: tuple[int, ...], seconds: float, seed: int) -> int:
        """Trains on all leads in equal parts; returns the steps made."""
        drawn, training = torch.Generator().manual_seed(seed), self.fields[: VALIDATION.start]
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE, weight_decay=1e-4)
        choices, start, step = torch.tensor(leads), process_time(), 0
        while (progress := (process_time() - start) / seconds) < 1:
            lead = choices[torch.randint(len(leads), (BATCH,), generator=drawn)]
            who = torch.randint(len(training), (BATCH,), generator=drawn)
            when = (torch.rand(BATCH, generator=drawn) * (training.shape[1] - lead)).long()
            rise = min(1.0, (step + 1) / WARM_UP)
            for group in optimizer.param_groups:
                group["lr"] = RATE * rise * 0.5 * (1 + math.cos(math.pi * progress))
            target = training[who, when + lead]
            loss = relative_l2(self(training[who, when], lead) + self.offset, target + self.offset)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            step += 1
        return step

    @torch.no_grad()
    def score(self, lead: int, num_steps: int = 1) -> float:
        """Returns the error on validation data after some steps of a lead."""
        fields, ahead = self.fields[VALIDATION], lead * num_steps
        state = fields[:, :-ahead].flatten(0, 1)
        for _ in range(num_steps):
            state = torch.cat(
                [self(part, torch.full((len(part),), lead)) for part in state.split(32)]
            )
        target = fields[:, ahead:].flatten(0, 1)
        return float(relative_l2(state + self.offset, target + self.offset))


def main(
    data: Positional[Path],
    leads: tuple[int, ...] = (1, 2, 3),
    seconds: float = 120.0,
    seed: int = 0,
) -> None:
    """Prints a row of a table for every model: errors after all leads, and rolled out."""
    torch.set_num_threads(1)
    for trained in (leads, *((lead,) for lead in leads)):
        model = LeadModel(data, seed)
        steps = model.fit(trained, seconds, seed)
        told = [f"{model.score(lead):.4f}" if lead in trained else "-" for lead in leads]
        num_steps, rest = divmod(leads[-1], trained[0])
        rolled = "-" if rest else f"{model.score(trained[0], num_steps):.4f}"
        print(f"| {trained} ({steps:,} steps) | {' | '.join(told)} | {rolled} |", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
