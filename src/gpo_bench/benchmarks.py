"""The paper's data sets, in the order of its table, and further ones."""

from gpo.data.benchmarks import DATA_SETS, Benchmark

OTHERS: dict[str, Benchmark] = {
    "ns3d": Benchmark(
        reader="pdebench",
        about="compressible turbulence in a periodic cube (PDEBench's files)",
        solver="gpo_bench.solvers.navier_stokes_3d",
    ),
    "era5-temp": Benchmark("gridded", "ERA5 temperature at 2 m", ("t2m",)),
    "era5-wind": Benchmark("gridded", "ERA5 zonal wind at 10 m", ("u10",)),
    "carra": Benchmark("gridded", "CARRA meridional wind at 10 m over the Arctic", ("v10",)),
    "airfoil": Benchmark(
        reader="airfoil",
        about="transonic flow around deformed airfoils (Geo-FNO's files)",
        solver="gpo_bench.solvers.airfoils",
    ),
    "turbulent": Benchmark(
        reader="well",
        about="turbulent_radiative_layer_2D of The Well",
        solver="gpo_bench.solvers.radiative_layer",
    ),
    "planetswe": Benchmark(
        reader="well",
        about="planetswe of The Well: shallow water on the sphere",
        solver="gpo_bench.solvers.shallow_water_sphere",
    ),
    "airfoil-series": Benchmark(
        reader="mesh-series",
        about="a vortex drifts past an airfoil, on triangular meshes (MeshGraphNets' layout)",
        solver="gpo_bench.solvers.airfoil_vortex",
    ),
}
"""Data sets that this package registers."""

BENCHMARKS: dict[str, Benchmark] = {
    "ns2d": DATA_SETS["ns2d"],
    **{name: data for name, data in OTHERS.items() if name != "airfoil-series"},
}
"""The columns of the paper's table."""
