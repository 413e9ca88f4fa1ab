"""From nothing to a picture: one Allen-Cahn step, learned, predicted and drawn in a minute.

Fields on a periodic box separate into two phases, u_t = eps^2 Laplace(u) + u - u^3. The
operator learns to jump from t = 0 to t = 1.5 and is scored on fields it has not seen.
"""

import argparse
import math

import torch
from rich.progress import track
from torch import Tensor

from gpo import (
    Domain,
    GaussianParticleOperator,
    OperatorConfig,
    Problem,
    draw_prediction,
    operator_losses,
    relative_l2,
)

SIZE, NUM_TRAINING, NUM_TEST = 32, 128, 32


def squared_wavenumbers(size: int) -> Tensor:
    """Returns |2 pi k|^2 on the grid of the discrete Fourier transform."""
    k = 2 * math.pi * torch.fft.fftfreq(size, 1 / size)
    return k[:, None] ** 2 + k[None, :] ** 2


def random_fields(count: int, generator: torch.Generator) -> Tensor:
    """Draws smooth random fields of standard deviation one half."""
    noise = torch.fft.fft2(torch.randn(count, SIZE, SIZE, generator=generator))
    fields = torch.fft.ifft2(noise * torch.exp(-squared_wavenumbers(SIZE) * 0.06**2 / 2)).real
    return 0.5 * fields / fields.std((1, 2), keepdim=True)


def allen_cahn(fields: Tensor, duration: float = 1.5, num_steps: int = 60) -> Tensor:
    """Solves u_t = 0.01^2 Laplace(u) + u - u^3 by splitting; each half is exact."""
    step = duration / num_steps
    decay = torch.exp(-(0.01**2) * squared_wavenumbers(fields.shape[-1]) * step)
    for _ in range(num_steps):
        grown = fields * math.exp(step)
        fields = grown / torch.sqrt(1 + fields.square() * (math.exp(2 * step) - 1))
        fields = torch.fft.ifft2(torch.fft.fft2(fields) * decay).real
    return fields


def main(out: str, num_steps: int) -> None:
    """Trains on 128 fields, scores on 32 others, draws one of these."""
    torch.manual_seed(0)
    domain = Domain.unit_box(2, periodic=True)
    coords, _ = domain.grid(SIZE, SIZE)
    fields = random_fields(NUM_TRAINING + NUM_TEST, torch.Generator().manual_seed(0))
    values, target = fields.flatten(1).unsqueeze(-1), allen_cahn(fields).flatten(1).unsqueeze(-1)

    model = GaussianParticleOperator(Problem(1, 1, domain), OperatorConfig(num_layers=2))
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=num_steps)
    for _ in track(range(num_steps), description="Training"):
        batch = torch.randint(NUM_TRAINING, (8,))
        optimizer.zero_grad()
        operator_losses(model, values[batch], coords, target[batch])["total"].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()

    unseen = slice(NUM_TRAINING, None)
    with torch.no_grad():
        prediction = model(values[unseen], coords)
        queries = coords + 0.5 / SIZE
        answer = model(values[unseen], coords, queries=queries)
        picture = draw_prediction(out, model, values[-1:], coords, target[-1:])
    score = relative_l2(prediction, target[unseen]).item()
    persistence = relative_l2(values[unseen], target[unseen]).item()
    print(f"relative L2 on {NUM_TEST} unseen fields: {score:.3f} (persistence: {persistence:.3f})")
    print(
        f"at {len(queries)} queries between the sites: values from {answer.min():.2f} to {answer.max():.2f}"
    )
    print(f"picture: {picture}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="runs/first_operator.png", help="where the picture goes")
    parser.add_argument("--num-steps", type=int, default=600, help="training steps")
    main(**vars(parser.parse_args()))
