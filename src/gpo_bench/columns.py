"""The columns of Table 1: the paper's eight benchmarks, ns2d at viscosity 1e-4, and real data."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpo.data.benchmarks import DATA_SETS
from gpo_bench.benchmarks import BENCHMARKS


class NoDataError(ValueError):
    """A column has no data; the message is the reason, short enough for a table."""


@dataclass(frozen=True)
class Column:
    """The learning task of a column, which is the same for all models."""

    about: str
    """Description in one line."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of a run, such as the lead time."""
    quick: dict[str, Any] = field(default_factory=dict)
    """Further settings with the quick preset, which let FNO make a thousand steps."""
    file: str | None = None
    """Path of the real data below the folder of such files; None for a benchmark."""

    @property
    def rules(self) -> str:
        """The settings other than the variables, as text; empty if there are none."""
        texts = {
            name: " ".join(map(str, value)) if isinstance(value, tuple) else value
            for name, value in self.settings.items()
            if name != "var"
        }
        return ", ".join(f"{name}={text}" for name, text in texts.items())

    def source(self, name: str, files: Path, preset: str) -> dict[str, Any]:
        """Returns the settings that select the data; raises `NoDataError` if there are none.

        Args:
            name: Name of the column.
            files: Folder of real data; published files of a benchmark are found there as NAME.*.
            preset: Size of generated data.
        """
        settings = {**self.settings, **(self.quick if preset == "quick" else {})}
        if self.file is not None:
            path = files / self.file
            if not path.exists():
                raise NoDataError(f"no {self.file} in the folder of --files")
            return {"data": str(path), **settings}
        published = sorted(files.glob(f"{name}.*")) + sorted(files.glob(f"{name}/"))
        if published:
            # Named beside the file, for the sizes of the preset paper.
            variables = DATA_SETS[name].variables
            return {"benchmark": name, "data": str(published[0]), "var": variables, **settings}
        if preset not in DATA_SETS[name].solvers:
            raise NoDataError(f"no {name}.* in the folder of --files")
        return {"benchmark": name, **settings}


QUICK: dict[str, dict[str, Any]] = {
    "ns2d": {"coarsen": 2},
    "ns2d-1e-5": {"coarsen": 2},
    "ns3d": {"coarsen": 4},
    "airfoil": {"coarsen": 2, "batch_size": 2},
    "turbulent": {"coarsen": 2, "batch_size": 4},
    "planetswe": {"coarsen": 2, "batch_size": 4},
}
"""Settings of the benchmarks with the quick preset."""

COLUMNS: dict[str, Column] = {
    **{
        name: Column(DATA_SETS[name].about, quick=QUICK.get(name, {}))
        for name in ("ns2d", *BENCHMARKS)
    },
    "era5-uk": Column(
        "ERA5 temperature at 2 m around the UK, 6 h ahead from two frames and the time of day",
        {"lead": 6, "history": 2, "time_features": ("day",)},
        file="era5/era5-2mt-2019-03-uk.grib",
    ),
    "cylinder": Column(
        "wake of a cylinder at unstructured points, 0.5 time units ahead",
        {"lead": 5},
        {"coarsen": 2},
        "cylinder_wake/cylinder_nektar_wake.mat",
    ),
    "channel": Column(
        "start-up flow past a cylinder at nodes of a triangular mesh",
        {"relative_to": "change"},
        quick={"coarsen": 2},
        file="cylinder_channel",
    ),
    "radar": Column(
        "rain rate over the Netherlands by radar, 5 minutes ahead, 75 % outside the radar image",
        {"validation_from": "2010-08-26T04:30", "test_from": "2010-08-26T05:40"},
        {"batch_size": 4},
        "radar_knmi/knmi_radar_20100826_8km.nc",
    ),
    "med-wind": Column(
        "daily wind at 10 m and sea surface temperature of the Mediterranean, land masked",
        {"var": ("u10", "v10", "sst")},
        {"coarsen": 4},
        "era5/era5_u10v10sst_med_daily12z_2022-01.nc",
    ),
}
"""All columns by name."""

PAPER_ROWS = {
    "fno": (3.24e-2, 5.07e-1, 7.09e-3, 1.02e-1, 3.50e-1, 5.12e-3, 4.82e-1, 9.23e-2),
    "m2no": (2.76e-2, 4.65e-1, 3.35e-3, 7.15e-2, 3.62e-1, 1.98e-3, 4.53e-1, 8.96e-2),
    "cno": (9.27e-2, 8.12e-1, 1.24e-2, 1.86e-1, 6.89e-1, 4.65e-3, 7.91e-1, 1.57e-1),
    "lsm": (3.11e-2, 3.80e-1, 5.86e-3, 8.23e-2, 4.05e-1, 5.37e-3, 4.16e-1, 9.58e-2),
    "amg": (3.12e-2, 4.32e-1, 6.11e-3, 8.79e-2, 3.21e-1, 3.09e-3, 4.47e-1, 8.14e-2),
    "galerkin": (8.81e-2, 5.39e-1, 5.44e-3, 1.55e-1, 3.73e-1, 8.26e-3, 5.41e-1, 1.23e-1),
    "gnot": (7.19e-1, 1.01, 1.55e-2, 3.49e-1, 7.57e-1, 1.53e-2, 9.86e-1, 2.14e-1),
    "transolver": (3.76e-2, 5.29e-1, 4.18e-3, 1.06e-1, 3.76e-1, 9.46e-3, 5.33e-1, 1.05e-1),
    "ono": (4.26e-2, 8.83e-1, 1.45e-2, 3.49e-1, 7.25e-1, 5.26e-3, 8.27e-1, 1.69e-1),
    "lno": (4.81e-2, 3.68e-1, 7.32e-3, 1.31e-1, 4.36e-1, 4.39e-3, 5.69e-1, 9.12e-2),
    "gpo-paper": (3.02e-2, 3.44e-1, 2.26e-3, 6.68e-2, 2.97e-1, 1.12e-3, 3.95e-1, 8.01e-2),
}
PAPER: dict[str, dict[str, float]] = {
    model: dict(zip(BENCHMARKS, errors, strict=True)) for model, errors in PAPER_ROWS.items()
}
"""Relative L2 in the paper's Table 1, by model and benchmark; its (Geo-)FNO is listed as fno."""
