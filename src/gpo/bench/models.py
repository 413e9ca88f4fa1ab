"""The models that are compared, by the names of their rows."""

from gpo.baselines import REGISTRY

VARIANTS = {"gpo": "geometric", "gpo-paper": "paper"}
"""The rows that are ours."""
MODELS = (*VARIANTS, *REGISTRY)


def run_settings(name: str) -> dict[str, str]:
    """Returns what a run of a model sets."""
    return {"model": "gpo", "variant": VARIANTS[name]} if name in VARIANTS else {"model": name}
