import math

import pytest
import torch

from gpo.numerics.motion import blurred, carried, estimate_motion

PERIODIC, OPEN = (True, True), (False, False)
SHAPE = (48, 40)
ONES = torch.ones(SHAPE, dtype=torch.double)


def waves(shift=(0.0, 0.0), shape=SHAPE):
    """A smooth periodic pattern, moved by a number of cells along each axis."""
    generator = torch.Generator().manual_seed(0)
    rows, columns = (torch.arange(n, dtype=torch.double) - s for n, s in zip(shape, shift, strict=True))  # fmt: skip
    total = torch.zeros(shape, dtype=torch.double)
    for k in range(1, 5):
        for m in range(-4, 5):
            size, phase = torch.rand(2, generator=generator, dtype=torch.double)
            angle = k * rows[:, None] / shape[0] + m * columns / shape[1] + phase
            total += size / (k * k + m * m) * torch.cos(2 * math.pi * angle)
    return total


def blobs(turn=0.0, speeds=(0.0, 0.0)):
    """Gaussians on an open grid, turned around its center, or moved along rows in either half."""
    rows, columns = torch.meshgrid(*(torch.arange(n, dtype=torch.double) for n in SHAPE), indexing="ij")  # fmt: skip
    total, middle = torch.zeros(SHAPE, dtype=torch.double), torch.tensor(SHAPE) / 2
    for number in range(40):
        place = torch.rand(2, generator=torch.Generator().manual_seed(number)) * torch.tensor(SHAPE)
        r, c = (place - middle).tolist()
        speed = speeds[int(c > 0)]
        r, c = r * math.cos(turn) - c * math.sin(turn), r * math.sin(turn) + c * math.cos(turn)
        r, c = r + middle[0] + speed, c + middle[1]
        total += torch.exp(-((rows - r) ** 2 + (columns - c) ** 2) / 18)
    return total


def motion_of(*frames, wraps=PERIODIC, weights=ONES, window=4.0):
    return estimate_motion(torch.stack(frames)[None], weights, wraps, window)[0]


@pytest.mark.parametrize("shift", [(1.3, 0.0), (-0.4, 0.7), (3.2, 2.1), (6.0, -5.0)])
def test_the_motion_of_a_pattern_is_recovered_and_carries_it_on(shift):
    motion = motion_of(waves(), waves(shift))
    expected = torch.tensor(shift, dtype=torch.double)[:, None, None]
    assert (motion - expected).abs().max() < 0.01
    following = waves((2 * shift[0], 2 * shift[1]))
    carried_on = carried(waves(shift)[None], motion[None], PERIODIC)[0]
    assert (carried_on - following).norm() < 0.005 * (waves(shift) - following).norm()


def test_of_three_frames_the_motion_is_that_of_both_pairs():
    motion = motion_of(waves(), waves((1.0, 0.5)), waves((2.0, 1.0)))
    torch.testing.assert_close(motion, motion_of(waves(), waves((1.0, 0.5))), rtol=0, atol=0.01)


@pytest.mark.parametrize("wraps", [PERIODIC, OPEN])
def test_a_constant_field_does_not_move(wraps):
    fields = torch.full((1, *SHAPE), 3.7, dtype=torch.double)
    motion = motion_of(fields[0], fields[0], wraps=wraps)
    assert not motion.any()
    moved = carried(fields, torch.full((1, 2, *SHAPE), 1.3, dtype=torch.double), wraps)
    torch.testing.assert_close(moved, fields, rtol=1e-14, atol=0)


def test_a_field_that_does_not_change_does_not_move():
    assert motion_of(waves(), waves()).abs().max() < 1e-12


def test_a_change_everywhere_by_another_scale_and_offset_leaves_the_motion():
    first, second = waves(), waves((1.0, 0.5))
    scaled = motion_of(1e5 + 40 * first, 1e5 + 40 * second)
    torch.testing.assert_close(scaled, motion_of(first, second), rtol=0, atol=1e-8)


def test_a_linear_field_is_carried_exactly_inside_an_open_grid():
    rows, columns = (torch.arange(n, dtype=torch.double) for n in SHAPE)
    field = 1 + 2 * rows[:, None] + 3 * columns
    motion = torch.tensor([0.3, -1.4], dtype=torch.double)[:, None, None].expand(1, 2, *SHAPE)
    moved = carried(field[None], motion, OPEN)[0]
    expected = field - 2 * 0.3 + 3 * 1.4
    torch.testing.assert_close(moved[2:-2, :-4], expected[2:-2, :-4], rtol=1e-12, atol=0)


def test_whole_cells_are_moved_exactly_across_the_seam():
    field = torch.randn(1, *SHAPE, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    motion = torch.tensor([5.0, -3.0], dtype=torch.double)[:, None, None].expand(1, 2, *SHAPE)
    assert torch.equal(carried(field, motion, PERIODIC), field.roll((5, -3), (1, 2)))


def test_a_rotation_is_recovered():
    turn = 0.04
    motion = motion_of(blobs(), blobs(turn), wraps=OPEN)
    rows, columns = torch.meshgrid(*(torch.arange(n, dtype=torch.double) - n / 2 for n in SHAPE), indexing="ij")  # fmt: skip
    expected = turn * torch.stack([-columns, rows])
    inside = (slice(None), slice(6, -6), slice(6, -6))
    error = (motion - expected)[inside].norm() / expected[inside].norm()
    assert error < 0.1


def test_two_halves_that_move_apart_have_motions_of_their_own():
    motion = motion_of(blobs(), blobs(speeds=(0.8, -0.8)), wraps=OPEN, window=3.0)
    assert motion[0, 12:-12, 4:10].mean() == pytest.approx(0.8, abs=0.15)
    assert motion[0, 12:-12, -10:-4].mean() == pytest.approx(-0.8, abs=0.15)


def test_where_nothing_is_seen_the_motion_is_that_of_the_rest():
    shift = (1.5, 0.5)
    weights = ONES.clone()
    weights[:, :20] = 0
    motion = motion_of(waves(), waves(shift), weights=weights)
    expected = torch.tensor(shift, dtype=torch.double)[:, None, None]
    assert (motion - expected).abs().max() < 0.01


def test_gaussian_means_are_those_of_a_plain_loop():
    field = torch.randn(1, 7, 6, dtype=torch.double, generator=torch.Generator().manual_seed(2))
    smooth = blurred(field, 1.3, (True, False))
    for i in range(7):
        for j in range(6):
            total = mass = 0.0
            for r in range(7):
                for c in range(6):
                    apart = min(abs(i - r), 7 - abs(i - r))
                    weight = math.exp(-(apart**2 + (j - c) ** 2) / (2 * 1.3**2))
                    total, mass = total + weight * field[0, r, c].item(), mass + weight
            assert smooth[0, i, j].item() == pytest.approx(total / mass, rel=1e-12)


def test_what_comes_from_outside_of_an_open_grid_is_the_value_at_the_edge():
    field = waves()[None]
    motion = torch.tensor([2.0, 0.0], dtype=torch.double)[:, None, None].expand(1, 2, *SHAPE)
    moved = carried(field, motion, OPEN)
    assert torch.equal(moved[:, 2:], field[:, :-2])
    assert torch.equal(moved[:, :2], field[:, :1].expand(-1, 2, -1))
