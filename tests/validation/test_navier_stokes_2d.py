"""Our solver beside one that is not ours."""

import math

import numpy as np
import pytest
import torch

from gpo.data.solvers.navier_stokes_2d import advance
from gpo.numerics.spectral import random_field

pytestmark = pytest.mark.slow


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("viscosity", "size"), [(1e-3, 64), (1e-4, 128)])
def test_vorticity_after_one_unit_of_time_is_that_of_exponax(viscosity, size):
    exponax = pytest.importorskip("exponax", reason="needs the package exponax")
    import jax

    jax.config.update("jax_enable_x64", True)
    duration, num_steps = 1.0, 400
    generator = torch.Generator().manual_seed(0)
    start = random_field(size, lambda squared: 0.05 * torch.exp(-squared / 400), generator)
    stepper = exponax.stepper.NavierStokesVorticity(
        2, 1.0, size, duration / num_steps, diffusivity=viscosity, order=4
    )
    theirs = start.numpy()[None]
    for _ in range(num_steps):
        theirs = stepper(theirs)
    # exponax counts vorticity in the other sense of rotation: same flow, both signs turned.
    turned = advance(torch.fft.rfft2(-start), duration, viscosity=viscosity, step=0.0025)
    ours = -torch.fft.irfft2(turned)
    change = np.linalg.norm(np.asarray(theirs)[0] - start.numpy())
    error = np.linalg.norm(np.asarray(theirs)[0] - ours.numpy())
    assert change > 0.1 * math.sqrt(size)
    assert error < 1e-4 * change
