"""Registers baselines, data sets and commands with gpo; an entry point names this module."""

from gpo.cli.registry import COMMANDS, Command
from gpo.data.benchmarks import DATA_SETS
from gpo.model.registry import MODELS, ModelEntry
from gpo_bench.benchmarks import OTHERS

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
}
"""By name: file, network and configuration of every baseline."""

for name, (file, network, config) in NETWORKS.items():
    home = f"gpo_bench.baselines.{file}"
    MODELS.register(name, ModelEntry(f"{home}:{network}", f"{home}:{config}"))

for name, data in OTHERS.items():
    DATA_SETS.register(name, data)

COMMANDS.register(
    "baselines",
    Command(
        "gpo_bench.list_baselines:Baselines",
        "Lists the baselines, their parameter counts and the sites they can take.",
    ),
)
COMMANDS.register(
    "bench",
    Command(
        "gpo_bench.command:Bench",
        "Makes the paper's tables and figures, with all models under the same rules.",
    ),
)
