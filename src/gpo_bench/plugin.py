"""Registers baselines, data sets and commands with `gpo`.

The entry point `bench` in the group `gpo.plugins` names this module. It is imported by every
command, so it refers to networks, solvers and commands by name and imports none of them.
"""

from gpo.cli.registry import COMMANDS, Command
from gpo.data.benchmarks import DATA_SETS, Benchmark
from gpo.data.downloads import Download
from gpo.model.registry import register_model

NETWORKS = {
    "fno": ("fno", "FNO", "FNOConfig"),
    "geo-fno": ("geo_fno", "GeoFNO", "GeoFNOConfig"),
    "cno": ("cno", "CNO", "CNOConfig"),
    "lsm": ("lsm", "LSM", "LSMConfig"),
    "m2no": ("m2no", "M2NO", "M2NOConfig"),
    "amg": ("amg", "AMG", "AMGConfig"),
    "galerkin": ("galerkin", "GalerkinTransformer", "GalerkinConfig"),
    "gnot": ("gnot", "GNOT", "GNOTConfig"),
    "transolver": ("transolver", "Transolver", "TransolverConfig"),
    "ono": ("ono", "ONO", "ONOConfig"),
    "lno": ("lno", "LNO", "LNOConfig"),
    "flower": ("flower", "Flower", "FlowerConfig"),
    "cnextu": ("cnextu", "CNextU", "CNextUConfig"),
    "unet": ("unet", "UNet", "UNetConfig"),
}
"""Module, network class and configuration class of each baseline."""

for name, (file, network, config) in NETWORKS.items():
    home = f"gpo_bench.baselines.{file}"
    register_model(name, f"{home}:{network}", f"{home}:{config}")

SOLVERS = "gpo_bench.solvers"
ERA5 = {
    "dataset": "reanalysis-era5-single-levels",
    "settings": {"product_type": ["reanalysis"], "download_format": "unarchived"},
    "is_in_arco": True,
}
NEW_DATA_SETS = {
    "ns3d": Benchmark(
        "pdebench",
        "compressible turbulence in a periodic cube (layout of PDEBench)",
        solver=f"{SOLVERS}.navier_stokes_3d",
    ),
    "era5-temp": Benchmark(
        "gridded",
        "ERA5 temperature at 2 m",
        ("t2m",),
        download=Download(variable="2m_temperature", names=("t2m", "2t", "VAR_2T"), **ERA5),
    ),
    "era5-wind": Benchmark(
        "gridded",
        "ERA5 zonal wind at 10 m",
        ("u10",),
        download=Download(
            variable="10m_u_component_of_wind", names=("u10", "10u", "VAR_10U"), **ERA5
        ),
    ),
    "carra": Benchmark(
        "gridded",
        "CARRA meridional wind at 10 m over the Arctic",
        ("v10",),
        download=Download(
            dataset="reanalysis-carra-single-levels",
            variable="10m_v_component_of_wind",
            names=("v10", "10v"),
            masks={"land_sea_mask": ("lsm",), "sea_ice_area_fraction": ("siconc", "ci")},
            settings={
                "domain": "east_domain",
                "level_type": "surface_or_atmosphere",
                "product_type": "analysis",
            },
            step=3,
        ),
    ),
    "airfoil": Benchmark(
        "airfoil",
        "transonic flow around deformed airfoils (layout of Geo-FNO)",
        solver=f"{SOLVERS}.airfoils",
    ),
    "turbulent": Benchmark(
        "well",
        "turbulent radiative mixing layer (turbulent_radiative_layer_2D of The Well)",
        solver=f"{SOLVERS}.radiative_layer",
    ),
    "planetswe": Benchmark(
        "well",
        "shallow water on the sphere (planetswe of The Well)",
        solver=f"{SOLVERS}.shallow_water_sphere",
    ),
    "airfoil-series": Benchmark(
        "mesh-series",
        "vortex advected past an airfoil, on triangular meshes (layout of MeshGraphNets)",
        solver=f"{SOLVERS}.airfoil_vortex",
    ),
}
"""Reader, description, variables and solver of each data set."""

for name, benchmark in NEW_DATA_SETS.items():
    DATA_SETS.register(name, benchmark)

COMMANDS.register(
    "presets",
    Command(
        "gpo_bench.list_presets:Presets",
        "Lists the paper's configurations and their parameter counts.",
    ),
)
COMMANDS.register(
    "baselines",
    Command(
        "gpo_bench.list_baselines:Baselines",
        "Lists the baselines with their parameter counts and the geometries they support.",
    ),
)
COMMANDS.register(
    "bench",
    Command(
        "gpo_bench.command:Bench",
        "Reproduces the paper's tables and figures, with the same protocol for all models.",
    ),
)
