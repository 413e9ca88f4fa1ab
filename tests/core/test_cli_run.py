"""Every way in which a run can be asked for wrongly, and what the command then says."""

import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pytest
import torch
import xarray as xr
import yaml

from gpo.cli import main, parse
from gpo.cli.describe import describe
from gpo.evaluation.results import Results
from gpo.runs import open_run
from gpo.training.config import RunConfig
from tests.contracts.samples import airfoil, ns2d
from tests.core.data.readers.synthetic_weather import write_era5
from tests.core.test_cli import failure
from tests.core.training.series import decaying_waves, squares

pytestmark = pytest.mark.usefixtures("small_pictures")
SIZES = ["--hidden-dim", "16", "--num-layers", "1", "--num-gaussians", "4",
         "--epochs", "1", "--quiet"]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a data file and a run trained on it."""
    folder = tmp_path_factory.mktemp("trained")
    main(["train", "--data", str(ns2d(folder)), *SIZES, "--out", str(folder / "run")])
    return folder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run",), "Name a benchmark, such as ns2d, or a file with --data."),
        (("run", "ns2d", "--data", "x.nc"), "x.nc: `file` does not exist"),
        (("run", "ns2d", "--devices", "-1"), "`devices` must be at least 1, got -1"),
        (("run", "ns5d"), "`name` must be one of ns2d"),
        (("run", "carra"), "carra has no solver: download its published files"),
        (("run", "--data", "nowhere.nc"), "nowhere.nc: `file` does not exist"),
        (("run", "--data", "{file}", "--var", "wind"), "`wind` is not in the file, which has vorticity"),
        (("run", "--data", "{file}", "--select", "level"), "--select takes name=value, got 'level'"),
        (("run", "--data", "{file}", "--time-features", "day"), "`time` has no dates, such as hours since"),
        (("run", "--data", "{file}", "--lead", "9"), "Choose a shorter history or lead"),
        (("run", "--data", "{file}", "--coarsen", "3"), "an axis of 8 sites cannot be coarsened by 3"),
        (("run", "--data", "{file}", "--model", "fnn"), "`model` must be one of gpo, gpo-paper, fno, geo-fno"),
        (("run", "--data", "{file}", "--rollout", "9"), "`rollout` must fit into the training series, got 9"),
        (("run", "--data", "{file}", "--batch-size", "3", "--devices", "2", "--out", "odd"), "multiple of the 2 processes, got 3"),
        (("run", "--data", "{file}", "--config", "nowhere.yaml"), "nowhere.yaml"),
        (("run", "--data", "{file}", "--out", "{file}/run"), "Not a directory"),
        (("train", "--data", "{file}", "--model", "gpo-paper", "--init", "nowhere", "--out", "begun"), "nowhere has no trained model: train one with gpo train"),
        (("train", "--data", "{file}", "--init", "nowhere", "--out", "begun"), "nowhere has no trained model"),
        (("evaluate", "nowhere"), "nowhere is not a run folder: it has no config.yaml"),
        (("report", "nowhere"), "nowhere is not a run folder: it has no config.yaml"),
        (("predict", "nowhere", "--input", "{file}", "--output", "x.nc"), "nowhere has no trained model: train one with gpo train"),
        (("predict", "{run}", "--input", "nowhere.mat", "--output", "x.nc"), "nowhere.mat: `file` does not exist"),
        (("predict", "{run}", "--input", "{file}", "--output", "x.nc", "--steps", "0"), "--steps must be at least 1, got 0"),
        (("predict", "{run}", "--input", "{file}", "--output", "x.nc", "--grid", "4", "4", "4"), "--grid takes 2 counts of at least 2, got (4, 4, 4)"),
        (("predict", "{run}", "--input", "{file}", "--output", "x.nc", "--queries", "nowhere.csv"), "nowhere.csv: `queries` cannot be read"),
        (("predict", "{run}", "--input", "{file}", "--output", "x.nc", "--queries", "a", "--grid", "4", "4"), "Give either --queries or --grid, not both"),
        (("predict", "{run}", "--input", "{file}", "--output", "{file}"), "exists. Choose another --output"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(trained, arguments, message, capsys, monkeypatch):
    monkeypatch.chdir(trained)
    filled = [part.format(file=trained / "ns.mat", run=trained / "run") for part in arguments]
    if arguments[0] in ("run", "train"):
        filled += SIZES
    code, printed = failure(capsys, *filled)
    assert code == 1
    assert message in printed
    assert "Traceback" not in printed
    assert not (trained / "x.nc").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "--epochs", "many"), "epochs"),
        (("run", "ns2d", "--learning-rate", "0"), "positive"),
        (("run", "--schedule", "sometimes"), "one-cycle"),
        (("run", "--preset", "huge"), "paper"),
        (("run", "--colour", "red"), "colour"),
        (("run", "ns2d", "--hidden-dim", "0"), "`hidden_dim` must be a whole number, at least 1"),
        (("run", "ns2d", "--var", "u", "u"), "once"),
        (("predict", "somewhere", "--output", "x.nc"), "--input"),
    ],
)
def test_arguments_that_make_no_sense_have_exit_code_two(arguments, message, capsys):
    code, printed = failure(capsys, *arguments)
    assert code == 2
    assert message in printed


def test_flags_go_before_the_file_and_the_file_before_the_preset(tmp_path):
    path = ns2d(tmp_path)
    (tmp_path / "run.yaml").write_text(f"data: {{data: {path}, preset: quick}}\noptimizer: {{seed: 7}}\nbudget: {{epochs: 3}}\nmodel: {{hidden_dim: 16}}\n")  # fmt: skip
    main(["train", "--config", str(tmp_path / "run.yaml"), "--epochs", "1", "--num-layers", "1", "--quiet", "--out", str(tmp_path / "run")])  # fmt: skip
    stored = RunConfig.load(tmp_path / "run" / "config.yaml")
    assert (stored.optimizer.seed, stored.model.config.hidden_dim) == (7, 16)
    assert (stored.budget.epochs, stored.budget.budget_cpu) == (1, 240)
    # What was resolved is a whole configuration, from which the same run can be made.
    resolved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert set(resolved) == set(RunConfig.__dataclass_fields__)
    assert resolved["model"]["name"] == "gpo"
    assert resolved["optimizer"]["learning_rate"] is None


def test_a_mistake_in_the_file_is_named(tmp_path, capsys):
    (tmp_path / "run.yaml").write_text("learning_rat: 1")
    code, printed = failure(capsys, "run", "ns2d", "--config", str(tmp_path / "run.yaml"))
    assert code == 1
    assert "run.yaml: field `learning_rat` is unknown" in printed


def test_answers_on_a_finer_grid_agree_at_the_sites(trained, tmp_path):
    where = [str(trained / "run"), "--input", str(trained / "ns.mat"), "--steps", "2"]
    main(["predict", *where, "--output", str(tmp_path / "sites.nc")])
    main(["predict", *where, "--output", str(tmp_path / "grid.nc"), "--grid", "16", "16"])
    with xr.open_dataset(tmp_path / "sites.nc") as sites, xr.open_dataset(tmp_path / "grid.nc") as grid:  # fmt: skip
        assert dict(grid.sizes) == {"trajectory": 4, "time": 2, "x": 16, "y": 16}
        every_second = grid["vorticity"].values[:, :, ::2, ::2]
        np.testing.assert_allclose(every_second, sites["vorticity"].values, atol=1e-4)
        assert np.isfinite(grid["vorticity"].values).all()


@pytest.mark.parametrize("suffix", ["csv", "npy"])
def test_answers_at_the_points_of_a_file_agree_with_the_sites(trained, tmp_path, suffix):
    points, path = np.array([[0.0, 0.25], [0.5, 0.125]]), tmp_path / f"points.{suffix}"
    if suffix == "csv":
        path.write_text("x,y\n0.0,0.25\n0.5,0.125\n")
    else:
        np.save(path, points)
    where = [str(trained / "run"), "--input", str(trained / "ns.mat")]
    main(["predict", *where, "--output", str(tmp_path / "sites.nc")])
    main(["predict", *where, "--output", str(tmp_path / "points.nc"), "--queries", str(path)])
    with xr.open_dataset(tmp_path / "sites.nc") as sites, xr.open_dataset(tmp_path / "points.nc") as asked:  # fmt: skip
        assert dict(asked.sizes) == {"trajectory": 4, "time": 1, "point": 2}
        np.testing.assert_array_equal(asked["coordinate_x"], points[:, 0])
        values = sites["vorticity"].values
        expected = np.stack([values[:, :, 0, 2], values[:, :, 4, 1]], -1)
        np.testing.assert_allclose(asked["vorticity"].values, expected, atol=1e-4)


@pytest.mark.parametrize("text", ["1 2 3\n", "", "x y\n1 nan\n"])
def test_points_of_the_wrong_kind_are_refused(trained, tmp_path, capsys, text):
    (tmp_path / "points.txt").write_text(text)
    code, printed = failure(
        capsys, "predict", str(trained / "run"), "--input", str(trained / "ns.mat"),
        "--output", str(tmp_path / "x.nc"), "--queries", str(tmp_path / "points.txt"),
    )  # fmt: skip
    assert code == 1
    assert "points.txt: `queries` must be" in printed


def test_places_on_the_sphere_are_longitudes_and_latitudes(tmp_path):
    path = tmp_path / "era5.nc"
    write_era5(path, num_times=30)
    main(["train", "--data", str(path), *SIZES, "--out", str(tmp_path / "run")])
    (tmp_path / "cities.csv").write_text("longitude,latitude\n10,50\n-30,-20\n")
    where = [str(tmp_path / "run"), "--input", str(path)]
    main(["predict", *where, "--output", str(tmp_path / "a.nc"), "--queries", str(tmp_path / "cities.csv")])  # fmt: skip
    main(["predict", *where, "--output", str(tmp_path / "b.nc"), "--grid", "6", "12"])
    with xr.open_dataset(tmp_path / "a.nc") as asked, xr.open_dataset(tmp_path / "b.nc") as grid:
        np.testing.assert_allclose(asked["longitude"], [10, -30], atol=1e-4)
        np.testing.assert_allclose(asked["latitude"], [50, -20], atol=1e-4)
        assert grid.sizes["latitude"] == 6
        assert grid.sizes["longitude"] == 12


def test_static_maps_are_predicted_sample_by_sample(tmp_path):
    path = airfoil(tmp_path)
    main(["train", "--data", str(path), *SIZES, "--out", str(tmp_path / "run")])
    main(["predict", str(tmp_path / "run"), "--input", str(path), "--output", str(tmp_path / "x.nc")])  # fmt: skip
    with xr.open_dataset(tmp_path / "x.nc") as written:
        assert written["mach"].dims == ("sample", "point")
        assert np.isfinite(written["mach"].values).all()


@pytest.mark.thorough
def test_a_baseline_runs_from_data_to_report_and_refuses_free_queries(tmp_path, capsys):
    path = ns2d(tmp_path)
    main(["run", "--data", str(path), "--model", "fno", "--epochs", "1", "--quiet", "--out", str(tmp_path / "run")])  # fmt: skip
    assert "model fno" in capsys.readouterr().out
    assert (tmp_path / "run" / "report.html").is_file()
    code, printed = failure(
        capsys, "predict", str(tmp_path / "run"), "--input", str(path), "--grid", "9", "9",
        "--output", str(tmp_path / "x.nc"),
    )  # fmt: skip
    assert code == 1
    assert "predicts at its input points only and has no ablations" in printed


def test_a_baseline_that_cannot_take_the_sites_says_why_and_leaves_no_model(tmp_path, capsys):
    points = np.random.default_rng(0).random((30, 2))
    np.savez(tmp_path / "points.npz", coords=points, time=np.arange(25.0), u=np.ones((25, 30)))
    code, printed = failure(
        capsys, "run", "--data", str(tmp_path / "points.npz"), "--model", "fno", "--quiet",
        "--out", str(tmp_path / "run"),
    )  # fmt: skip
    assert code == 1
    assert "fno cannot take these sites: needs a grid" in printed


def test_training_on_coarse_sites_is_scored_on_the_finer_ones(tmp_path, capsys):
    path = ns2d(tmp_path)
    main(["train", "--data", str(path), "--coarsen", "2", *SIZES, "--out", str(tmp_path / "run")])
    main(["evaluate", str(tmp_path / "run")])
    printed = capsys.readouterr().out
    assert ": 16 points" in printed
    assert f"verdict: {Results.load(tmp_path / 'run' / 'results.json').verdict}\n" in printed
    text = (tmp_path / "run" / "results.csv").read_text()
    assert "resolution,2x,model," in text


@pytest.mark.thorough
def test_one_step_is_scored_alone_and_the_rest_later(tmp_path):
    folder = tmp_path / "run"
    command = ["run", "--data", str(ns2d(tmp_path)), *SIZES, "--out", str(folder)]
    main([*command, "--scope", "one-step"])
    first = Results.load(folder / "results.json")
    assert (first.scope, first.rollout, first.spectrum) == ("one-step", {}, {})
    assert not (folder / "report.html").exists()
    main(["report", str(folder)])
    assert (folder / "report.html").is_file()
    main(["evaluate", str(folder)])
    second = Results.load(folder / "results.json")
    assert second.one_step == first.one_step
    assert second.scope == "all"
    assert second.rollout


@pytest.mark.thorough
def test_a_full_disk_ends_the_run_with_a_message_and_keeps_the_last_checkpoint(tmp_path):
    """No file may grow any more after the second epoch, as on a disk without space."""
    path, folder = ns2d(tmp_path), tmp_path / "run"
    script = f"""
import resource, sys
from gpo.cli import main
from gpo.training.checkpoints import RunCheckpoints
original, calls = RunCheckpoints.on_train_epoch_end, []
def fill(self, *arguments):
    calls.append(1)
    if len(calls) > 2:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    original(self, *arguments)
RunCheckpoints.on_train_epoch_end = fill
main({["train", "--data", str(path), *SIZES[:-3], "--epochs", "9", "--quiet", "--out", str(folder)]!r})
"""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "error:" in done.stderr
    assert "Traceback" not in done.stderr
    assert torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["epoch"] == 1
    # With space again, the same command goes on.
    main(["train", "--data", str(path), *SIZES[:-3], "--epochs", "9", "--quiet", "--out", str(folder)])  # fmt: skip
    assert (folder / "model" / "model.safetensors").is_file()


@pytest.mark.thorough
def test_the_field_phase_says_that_it_forecasts_nothing(trained, tmp_path, capsys):
    path = trained / "ns.mat"
    main(["run", "--data", str(path), "--phase", "field", *SIZES, "--out", str(tmp_path / "run")])
    assert "reconstructed from particles, no forecast" in capsys.readouterr().out
    assert (tmp_path / "run" / "report.html").is_file()
    code, printed = failure(
        capsys, "predict", str(tmp_path / "run"), "--input", str(path), "--output", str(tmp_path / "x.nc")
    )  # fmt: skip
    assert code == 1
    assert "holds a reconstruction (lead 0), which cannot forecast" in printed


def test_a_run_whose_training_has_not_ended_is_not_scored(trained, tmp_path, capsys):
    (tmp_path / "config.yaml").write_text((trained / "run" / "config.yaml").read_text())
    code, printed = failure(capsys, "evaluate", str(tmp_path))
    assert code == 1
    assert f"{tmp_path} has no trained model: train one with gpo train" in printed


@pytest.mark.parametrize("place", ["figures/forecast.png", "figures", "log", "results.json"])
@pytest.mark.parametrize("command", ["train", "evaluate", "report", "interpret"])
def test_nothing_is_written_through_links_in_a_run_folder(
    trained, tmp_path, capsys, command, place
):
    run, other = tmp_path / "run", tmp_path / "of the user"
    shutil.copytree(trained / "run", run, ignore=shutil.ignore_patterns("log"))
    other.mkdir()
    (other / "forecast.png").write_text("a picture")
    link = run / place
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(other if link.suffix == "" else other / "forecast.png")
    words = {"train": ["--data", str(ns2d(tmp_path)), *SIZES, "--epochs", "2", "--out", str(run)]}
    code, message = failure(capsys, command, *words.get(command, [str(run)]))
    assert code == 1
    assert f"{link} must not be a symbolic link" in message
    assert [path.name for path in other.iterdir()] == ["forecast.png"]
    assert (other / "forecast.png").read_text() == "a picture"


def test_tensorboard_gets_the_losses_with_its_flag(tmp_path):
    main(["train", "--data", str(ns2d(tmp_path)), *SIZES, "--tensorboard", "--out", str(tmp_path / "run")])  # fmt: skip
    assert list((tmp_path / "run" / "tensorboard").rglob("events.out.tfevents*"))


def test_a_run_with_time_features_is_scored_and_predicts(tmp_path):
    path, run = tmp_path / "era5.nc", tmp_path / "run"
    write_era5(path, num_times=40)
    given = ["--data", str(path), "--var", "t2m", "--time-features", "day", "--history", "2"]
    main(["run", *given, *SIZES, "--scope", "one-step", "--out", str(run)])
    assert set(Results.load(run / "results.json").per_variable["model"]) == {"t2m"}
    main(["predict", str(run), "--input", str(path), "--output", str(tmp_path / "a.nc"), "--steps", "3"])  # fmt: skip
    with xr.open_dataset(tmp_path / "a.nc") as forecast:
        assert [name for name in forecast.data_vars if "valid_time" in forecast[name].dims] == [
            "t2m"
        ]
        assert np.isfinite(forecast["t2m"]).all()


def test_a_failed_command_leaves_no_folder_and_a_corrected_one_runs(trained, tmp_path, capsys):
    path, folder = trained / "ns.mat", tmp_path / "run"
    for wrong in (["--var", "wind"], ["--rollout", "9"], ["--init", str(tmp_path / "nowhere")]):
        failure(capsys, "train", "--data", str(path), *SIZES, *wrong, "--out", str(folder))
        assert not folder.exists()
    main(["train", "--data", str(path), *SIZES, "--out", str(folder)])
    assert (folder / "model").is_dir()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("limit", "larger"),
    [(["--steps", "3"], "--steps 6"), (["--budget-cpu", "0.1"], "--budget-cpu 1")],
)
def test_a_finished_run_names_the_limit_that_ended_it(tmp_path, capsys, limit, larger):
    command = [
        "train",
        "--data",
        str(ns2d(tmp_path)),
        *SIZES[:-3],
        "--quiet",
        "--out",
        str(tmp_path / "run"),
    ]
    command += ["--no-auto", *limit]
    main(command)
    capsys.readouterr()
    main(command)
    assert f"finished: nothing to do; continue with {larger}\n" in capsys.readouterr().out
    main([*command, *larger.split()])
    assert "continues after" in capsys.readouterr().out


@pytest.mark.thorough
def test_a_finished_run_typed_again_does_nothing_and_goes_on_when_given_more(tmp_path, capsys):
    command = ["run", "--data", str(ns2d(tmp_path)), *SIZES, "--out", str(tmp_path / "run")]
    main(command)
    report = tmp_path / "run" / "report.html"
    written = report.stat().st_mtime_ns
    assert "<title>gpo: run</title>" in report.read_text()
    capsys.readouterr()
    main(command)
    assert "finished: nothing to do; continue with --epochs 2" in capsys.readouterr().out
    assert report.stat().st_mtime_ns == written
    main([*command, "--epochs", "2"])
    assert "continues after epoch 1" in capsys.readouterr().out
    assert "continues after epoch 1" in report.read_text()
    assert "ended: 2 epochs are done" in report.read_text()


@pytest.mark.thorough
def test_a_run_is_scored_from_another_folder(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(trained)
    main(["train", "--data", "ns.mat", *SIZES, "--out", str(tmp_path / "run")])
    monkeypatch.chdir(tmp_path)
    main(["evaluate", "run"])
    assert (tmp_path / "run" / "results.json").is_file()


def test_a_task_that_the_model_did_not_learn_is_not_scored(trained, tmp_path, capsys):
    shutil.copytree(trained / "run", tmp_path / "run")
    path = tmp_path / "run" / "config.yaml"
    path.write_text(path.read_text().replace("lead: 1", "lead: 2"))
    code, printed = failure(capsys, "evaluate", str(tmp_path / "run"))
    assert code == 1
    assert "field `task.lead` must be 1, as in the trained model, got 2" in printed


def test_a_file_in_the_place_of_a_benchmark_is_data(tmp_path, capsys):
    path = str(ns2d(tmp_path))
    assert parse(["run", path, "--epochs", "1"]) == parse(["run", "--data", path, "--epochs", "1"])
    assert parse(["train", path]).auto
    code, printed = failure(capsys, "run", str(tmp_path / "nowhere.nc"))
    assert code == 1
    assert "A file, which must exist, is named with --data" in printed


def test_the_version_is_printed(capsys):
    main(["--version"])
    assert capsys.readouterr().out == f"gpo {version('gpo')}\n"


def test_few_validation_and_test_examples_are_noted(tmp_path):
    for num_times, noted in ((23, "only 1 validation and 1 test example(s)"), (100, "")):
        data = decaying_waves(num_trajectories=1, num_times=num_times)
        notes = [text for label, text in describe(data) if label == "note"]
        assert any(noted in note for note in notes) if noted else notes == []


def test_data_and_runs_have_a_short_repr(trained):
    run = open_run(trained / "run")
    assert "ns.mat: vorticity; 4 x 6 frames of 64 sites" in repr(run.data)
    assert len(repr(run)) < 300
    assert len(repr(squares())) < 100
    assert len(repr(run.data.geometry())) < 50


def test_settings_in_a_file_may_be_spelled_as_flags(trained, tmp_path):
    (tmp_path / "run.yaml").write_text("optimizer: {learning-rate: 0.002}\n")
    main(["train", "--data", str(trained / "ns.mat"), "--config", str(tmp_path / "run.yaml"), *SIZES, "--out", str(tmp_path / "run")])  # fmt: skip
    assert RunConfig.load(tmp_path / "run" / "config.yaml").learning_rate == 0.002


def test_fine_tuning_follows_the_sizes_of_the_run_it_starts_from(trained, tmp_path, capsys):
    main(["train", "--data", str(trained / "ns.mat"), "--init", str(trained / "run"), "--epochs", "1", "--coarsen", "2", "--quiet", "--out", str(tmp_path / "run")])  # fmt: skip
    assert "initialised" in capsys.readouterr().out
    config = RunConfig.load(tmp_path / "run" / "config.yaml")
    assert config.model.config.hidden_dim == 16


@pytest.mark.parametrize(("hours", "is_offered"), [(6, True), (24, False), (730, False)])
def test_the_time_of_day_is_offered_only_where_frames_differ_in_it(hours, is_offered):
    dated = replace(decaying_waves(), first_hour=0.0, time=np.arange(10.0) * hours)
    assert ("--time-features day" in dict(describe(dated))["series"]) is is_offered
