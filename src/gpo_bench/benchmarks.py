"""The benchmarks of the paper."""

from gpo.data.benchmarks import DATA_SETS, Benchmark

PAPER_COLUMNS = (
    "ns2d-1e-5", "ns3d", "era5-temp", "era5-wind", "carra", "airfoil", "turbulent", "planetswe"
)  # fmt: skip

BENCHMARKS: dict[str, Benchmark] = {name: DATA_SETS[name] for name in PAPER_COLUMNS}
"""The benchmarks by name, in the order of the columns of the paper's Table 1."""
