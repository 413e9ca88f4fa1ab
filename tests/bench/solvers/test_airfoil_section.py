import numpy as np
import pytest

from gpo.data.dataset import DataError
from gpo_bench.solvers.airfoil_mesh import deformed, naca, named_section, read_section

X = np.linspace(0, 1, 201)


def write_outline(path, section, title="NACA 2412", order=1):
    places = (1 - np.cos(np.linspace(0, np.pi, 61))) / 2
    rows = [*zip(places[::-1], section.upper(places)[::-1], strict=True)]
    rows += [*zip(places[1:], section.lower(places)[1:], strict=True)]
    text = "\n".join(f"{200 * x:.6f} {200 * y:.6f}" for x, y in rows[::order])
    path.write_text(f"{title}\n{text}\n", encoding="utf-8")
    return path


def test_a_naca_section_has_the_thickness_camber_and_nose_of_its_digits():
    section = named_section("2412")
    up, down = section.upper(X), section.lower(X)
    assert (up - down).max() == pytest.approx(0.12, abs=2e-4)
    assert X[(up - down).argmax()] == pytest.approx(0.3, abs=0.02)
    assert ((up + down) / 2).max() == pytest.approx(0.02, abs=1e-4)
    assert X[((up + down) / 2).argmax()] == pytest.approx(0.4, abs=0.01)
    np.testing.assert_allclose([up[-1], down[-1], up[0], down[0]], 0, atol=1e-12)
    radius, tilt = naca(0.12).nose
    assert radius == pytest.approx(1.1019 * 0.12**2, rel=0.02)
    assert tilt == pytest.approx(0, abs=1e-12)


def test_a_section_is_read_back_from_a_file_at_any_scale(tmp_path):
    section = named_section("2412")
    path = write_outline(tmp_path / "naca2412.dat", section)
    same = named_section(str(path))
    np.testing.assert_allclose(same.upper(X), section.upper(X), atol=2e-4)
    np.testing.assert_allclose(same.lower(X), section.lower(X), atol=2e-4)


def test_a_file_that_is_no_outline_is_refused(tmp_path):
    few = tmp_path / "few.dat"
    few.write_text("title\n1 0\n0 0\n1 0\n", encoding="utf-8")
    with pytest.raises(DataError, match="at least 10 lines of two numbers, got 3"):
        read_section(few)
    mixed = tmp_path / "mixed.dat"
    mixed.write_text("\n".join(f"{k % 7} {k}" for k in range(40)), encoding="utf-8")
    with pytest.raises(DataError, match="along the upper surface to the nose"):
        read_section(mixed)
    with pytest.raises(ValueError, match="four digits of a NACA section or a file, got 'e387'"):
        named_section("e387")


def test_deformations_are_smooth_and_leave_nose_and_tail():
    base = naca(0.12)
    changed = [deformed(base, np.random.default_rng(seed), 0.025) for seed in range(20)]
    moves = np.stack([section.upper(X) - base.upper(X) for section in changed])
    np.testing.assert_allclose(moves[:, [0, -1]], 0, atol=1e-12)
    assert 0.003 < moves.std(0).max() < 0.02
    assert all((section.upper(X[1:-1]) > section.lower(X[1:-1])).all() for section in changed)
    fine = np.linspace(0.05, 0.95, 1001)
    wiggles = [np.diff(np.sign(np.diff(s.upper(fine) - base.upper(fine)))) for s in changed]
    assert max(np.count_nonzero(turns) for turns in wiggles) <= 5
