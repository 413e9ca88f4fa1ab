"""The figures of the paper, from small runs."""

import json

import numpy as np
import pytest
import torch
import xarray as xr
from matplotlib.collections import PolyCollection

from gpo import Domain
from gpo.cli import main
from gpo.model.particles import Particles
from gpo.runs import open_run
from gpo_bench.paper_figures import FigureInputs, MissingInputError, figures_of, fused
from tests.contracts.samples import ns2d

SIZES = ["--model", "gpo-paper", "--hidden-dim", "8", "--num-layers", "2", "--num-heads", "2",
         "--num-gaussians", "3", "--epochs", "1", "--quiet"]  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    data = str(ns2d(folder))
    field = ["train", "--data", data, *SIZES, "--phase", "field", "--out", str(folder / "field")]
    main(field)
    main(["run", "--data", data, *SIZES, "--predict", "state", "--out", str(folder / "operator")])
    return folder


def titles(figure):
    return [axes.get_title() for axes in figure.axes if axes.get_title()]


def test_every_figure_without_its_input_names_the_command_that_makes_it(tmp_path):
    for name, draw in figures_of(FigureInputs(results=tmp_path)).items():
        with pytest.raises(MissingInputError, match=r"gpo (run|bench|data)"):
            draw()
        assert name in ("reconstruction", "era5", "activations", "rollout", "spectrum", "efficiency", "ablation")  # fmt: skip


@pytest.mark.thorough
def test_a_reconstruction_has_particles_of_the_text_and_of_the_code_for_both_data(runs):
    (data,) = runs.glob("*.mat")
    draw = figures_of(FigureInputs(field=runs / "field", unseen=data))["reconstruction"]
    names = titles(draw())
    assert len(names) == 10
    assert names[0] == "truth, in distribution"
    assert [" ".join(name.split()[2:]) for name in names[3:5]] == ["192 Gaussians", "64 sites"]
    assert names[5] == f"truth, out of distribution: {data.stem}"


@pytest.mark.thorough
def test_activations_stand_between_input_and_target(runs):
    names = titles(figures_of(FigureInputs(operator=runs / "operator"))["activations"]())
    assert names == [
        "input", "Σ z before layer 1", "Σ z after layer 1", "Σ z after layer 2, particles",
        "target", "Σ z² before layer 1", "Σ z² after layer 1", "Σ z² after layer 2, particles",
    ]  # fmt: skip


@pytest.mark.thorough
def test_spectra_end_at_the_largest_wave_number_of_the_grid(runs):
    figure = figures_of(FigureInputs(compared=(runs / "operator",)))["spectrum"]()
    (axes,) = figure.axes
    labels = [line.get_label() for line in axes.lines]
    (size,) = {*open_run(runs / "operator").data.geometry().grid_shape}
    assert f"largest wave number of the grid, {size / 2:g}" in labels
    assert max(line.get_xdata()[-1] for line in axes.lines if line.get_label() == "truth") <= np.ceil(size / 2 * np.sqrt(2))  # fmt: skip


@pytest.mark.thorough
def test_rollouts_have_persistence_and_a_line_for_every_run(runs):
    figure = figures_of(FigureInputs(compared=(runs / "operator",)))["rollout"]()
    assert [line.get_label() for line in figure.axes[0].lines] == ["persistence", "gpo-paper (operator)"]  # fmt: skip


def test_an_ablation_stands_beside_the_papers_rows(tmp_path):
    folder = tmp_path / "ablation-gpo-paper"
    folder.mkdir()
    seeds = [{"relative_l2": 0.2, "references": {}}, {"relative_l2": 0.4, "references": {}}]
    rows = [{"row": name, "column": "ns2d", "seeds": seeds} for name in ("1 Gaussian", "mine")]
    (folder / "experiments.json").write_text(json.dumps({"outcomes": rows}))
    (axes,) = figures_of(FigureInputs(results=tmp_path))["ablation"]().axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["1 Gaussian", "mine"]
    widths = [bar.get_width() for bar in axes.patches]
    np.testing.assert_allclose(widths, [0.3, 0.3, 6.28e-2, np.nan])


def test_the_fused_gaussian_has_the_moments_of_the_mixture():
    generator = torch.Generator().manual_seed(0)
    domain = Domain.unit_box(2)
    centers, scales = torch.rand(2, 1, 1, 3, 2, generator=generator, dtype=torch.float64)
    weights = torch.tensor([[[0.5, 0.2, 0.3]]], dtype=torch.float64)
    one = fused(Particles(centers, scales, weights), weights, domain)
    draws = []
    for number, weight in enumerate(weights[0, 0]):
        count = round(400_000 * float(weight))
        noise = torch.randn(count, 2, generator=generator, dtype=torch.float64)
        draws.append(centers[0, 0, number] + scales[0, 0, number] * noise)
    sample = torch.cat(draws)
    torch.testing.assert_close(one.centers[0, 0, 0], sample.mean(0), atol=5e-3, rtol=0)
    torch.testing.assert_close(one.scales[0, 0, 0], sample.std(0), atol=5e-3, rtol=0)
    assert float(one.weights) == pytest.approx(1.0)


@pytest.mark.thorough
def test_particles_on_the_sphere_lie_on_the_map(tmp_path):
    times, latitude, longitude = np.arange(24), np.linspace(80, -80, 5), np.arange(0.0, 360, 45)
    values = np.random.default_rng(0).normal(size=(24, 5, 8)).astype(np.float32)
    coords = {"time": times, "latitude": latitude, "longitude": longitude}
    dataset = xr.Dataset({"t2m": (("time", "latitude", "longitude"), values)}, coords)
    for name in ("latitude", "longitude"):
        dataset[name].attrs["standard_name"] = name
    dataset["time"].attrs["units"] = "hours since 2020-01-01"
    dataset.to_netcdf(tmp_path / "era5.nc")
    field = ["--phase", "field", "--out", str(tmp_path / "field")]
    main(["train", "--data", str(tmp_path / "era5.nc"), *SIZES, *field])
    figure = figures_of(FigureInputs(era5=tmp_path / "field"))["era5"]()
    for axes in figure.axes[3:5]:
        (ellipses,) = [part for part in axes.collections if isinstance(part, PolyCollection)]
        centers = np.array([path.vertices.mean(0) for path in ellipses.get_paths()])
        low, high = axes.get_xlim()
        assert ((centers[:, 0] >= low - 30) & (centers[:, 0] <= high + 30)).all()
