import numpy as np
import pytest

from gpo.data.rotated_pole import RotatedPole


def vectors(latitude, longitude):
    up, along = np.deg2rad(latitude), np.deg2rad(longitude)
    return np.stack([np.cos(up) * np.cos(along), np.cos(up) * np.sin(along), np.sin(up)], -1)


def test_the_rotation_is_that_of_the_published_formula():
    # sin(lat) = sin(rlat) sin(p) + cos(rlat) cos(p) cos(theta), and the like for the longitude.
    pole = RotatedPole(40.0, -100.0, 25.0)
    up, along = np.array([-30.0, 10.0, 55.0]), np.array([-170.0, 3.0, 50.0])
    r, theta, p = np.deg2rad(up), np.deg2rad(along - 25.0), np.deg2rad(40.0)
    sine = np.sin(r) * np.sin(p) + np.cos(r) * np.cos(p) * np.cos(theta)
    turn = np.arctan2(
        -np.cos(r) * np.sin(theta), np.sin(r) * np.cos(p) - np.cos(r) * np.sin(p) * np.cos(theta)
    )
    true = vectors(np.rad2deg(np.arcsin(sine)), np.rad2deg(turn) - 100.0)
    np.testing.assert_allclose(pole.to_true(vectors(up, along)), true, atol=1e-12)
    np.testing.assert_allclose(pole.to_rotated(true), vectors(up, along), atol=1e-12)


def test_the_rotated_pole_has_its_stated_position():
    pole = RotatedPole(40.0, -100.0, 25.0)
    np.testing.assert_allclose(pole.to_true(vectors([90.0], [0.0])), vectors([40.0], [-100.0]))
    np.testing.assert_allclose(pole.to_true(vectors([40.0], [25.0])), [[0, 0, 1]], atol=1e-12)


@pytest.mark.parametrize(
    "parameters",
    [(39.25, -162.0, 0.0), (-70.0, 15.0, 40.0), (90.0, 180.0, 30.0), (-90.0, 180.0, 30.0)],
)
def test_a_pole_is_found_from_points_in_both_frames(parameters):
    pole = RotatedPole(*parameters)
    frame = vectors(np.array([-20.0, 3.0, 15.0, 4.0]), np.array([-10.0, 4.0, 12.0, -3.0]))
    fitted = RotatedPole.fitted(frame, pole.to_true(frame))
    np.testing.assert_allclose(fitted.matrix, pole.matrix, atol=1e-9)
