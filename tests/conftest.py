import math
import os
from collections import Counter
from dataclasses import fields

import jaxtyping
import pytest
import torch

from gpo import (
    Domain,
    GaussianParticleOperator,
    OperatorConfig,
    PaperConfig,
    Problem,
    gaussian_field,
    unit_vectors,
)
from gpo.model.config import AnyConfig
from gpo.model.model import AbstractModel
from gpo.model.registry import NoConfig

# Pytest runs one worker per core; sums over more threads differ in their last bits, so processes
# that a test starts have as many threads as the test itself.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"


GEOMETRIES = {"data", "domain", "geometry", "grid", "kind", "mask", "place", "places"}
"""Parameters of tests that are geometries: with `--fast`, a test runs on the first one only."""


def pytest_addoption(parser):
    """Adds the option of `make fast`."""
    parser.addoption(
        "--fast",
        action="store_true",
        help="leave out tests marked slow or thorough, run the others on one geometry each",
    )


def pytest_collection_modifyitems(config, items):
    """Deselects what `--fast` leaves out."""
    if not config.getoption("--fast"):
        return
    selected, deselected, cases = [], [], set()
    for item in items:
        is_long = item.get_closest_marker("slow") or item.get_closest_marker("thorough")
        case = case_of(item)
        (deselected if is_long or case in cases else selected).append(item)
        if not is_long:
            cases.add(case)
    items[:] = selected
    config.hook.pytest_deselected(items=deselected)


def case_of(item):
    """Returns what distinguishes a test from others, geometries apart."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    if GEOMETRIES.isdisjoint(parameters):
        return item.nodeid
    others = (f"{name}={parameters[name]!r}" for name in sorted(parameters.keys() - GEOMETRIES))
    return item.parent.nodeid, item.originalname, *others


def pytest_terminal_summary(terminalreporter):
    """Lists in the last lines how many tests were skipped and why."""
    skipped = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])]
    terminalreporter.section(f"{len(skipped)} skipped")
    for reason, count in Counter(skipped).most_common():
        terminalreporter.line(f"{count:5d}  {reason.removeprefix('Skipped: ')}")


CHECKED_CALLS = 10_000
"""How many calls of a test have their types checked; training loops repeat these calls."""


class FirstCalls(type(jaxtyping.config)):
    """Checks the types of the first calls of every test, since a check often takes longer than a call."""

    is_off, num_calls = False, 0

    @property
    def jaxtyping_disable(self) -> bool:
        """Whether the next call goes unchecked; jaxtyping reads this before every call."""
        if self.is_off:
            return True
        self.num_calls += 1
        return self.num_calls > CHECKED_CALLS

    @jaxtyping_disable.setter
    def jaxtyping_disable(self, is_off: bool) -> None:
        self.is_off = is_off


jaxtyping.config.__class__ = FirstCalls


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    jaxtyping.config.num_calls = 0


@pytest.fixture(scope="module")
def untyped():
    """Switches type checks off: exported and compiled programs cannot contain them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jaxtyping.config, "is_off", True)
        yield


@pytest.fixture
def small_pictures(monkeypatch):
    """Saves figures at a low resolution, for tests of the pages around them."""
    from matplotlib.figure import Figure

    save = Figure.savefig

    def save_small(figure, *arguments, **settings):
        return save(figure, *arguments, **{**settings, "dpi": 30})

    monkeypatch.setattr(Figure, "savefig", save_small)


# The first one is the domain of `make fast`.
DOMAINS = {
    "channel": Domain.box([0, 0], [2, 1], periodic=[True, False]),
    "line": Domain.box([-1], [3]),
    "circle": Domain.box([0], [2], periodic=True),
    "square": Domain.box([0, -2], [1, 2]),
    "torus": Domain.unit_box(2, periodic=True),
    "cube": Domain.unit_box(3, periodic=[False, True, False]),
    "sphere": Domain.sphere(),
    "patch": Domain.sphere(
        unit_vectors(torch.tensor([-5.0, 20.0, 5.0]), torch.tensor([40.0, 55.0, 60.0]))
    ),
}


@pytest.fixture(params=DOMAINS.values(), ids=DOMAINS.keys())
def domain(request):
    return request.param


def random_points(domain: Domain, *shape: int, dtype=torch.float64) -> torch.Tensor:
    """Points spread evenly over a domain."""
    if domain.is_sphere:
        return domain.wrap(domain.from_unit(torch.randn(*shape, 3, dtype=dtype)))
    return domain.from_unit(torch.rand(*shape, domain.dim, dtype=dtype))


SEAMLESS = {"nearest_images": True, "integer_frequencies": True}
"""Options of the paper's operator with which periodic axes close."""

SMOOTH = {**SEAMLESS, "readout": "softplus"}
"""The same, and a readout with which no row is divided by a sum near zero."""


def make_config(*, variant: str = "paper", **changes) -> AnyConfig:
    """Sizes of a model small enough to check number by number."""
    config = PaperConfig if variant == "paper" else OperatorConfig
    known = {field.name for field in fields(config)}
    sizes = {
        "hidden_dim": 8,
        "num_layers": 2,
        "num_heads": 2,
        "num_gaussians": 5,
        "num_frequencies": 4,
        # One layer of waves alone, and one with transport.
        "num_transports": 1,
    }
    sizes |= changes
    return config(**{name: value for name, value in sizes.items() if name in known})


def make_problem(domain: Domain, **changes) -> Problem:
    """Two channels in and three out; changes that are no fields of a problem are left alone."""
    shape = changes.pop("mesh_shape", ())
    known = {field.name for field in fields(Problem)}
    sizes = {
        "in_channels": 2,
        "out_channels": 3,
        "grid_shape": shape,
        "is_fitted": bool(shape),
        **changes,
    }
    return Problem(domain=domain, **{name: value for name, value in sizes.items() if name in known})


def make_model(domain: Domain, *, variant: str = "paper", **changes) -> GaussianParticleOperator:
    """Such a model in double precision, its parameters large enough to matter."""
    config = make_config(variant=variant, **changes)
    model = GaussianParticleOperator(make_problem(domain, **changes), config).double()
    with torch.no_grad():
        lifted = () if variant == "paper" else model.lift.named_parameters()
        for name, parameter in (*lifted, *model.layers.named_parameters()):
            # Scales are logarithms; half a cell of a fine lattice has no effect on a coarse one.
            parameter.add_(math.log(4)) if name.endswith("log_scale") else parameter.mul_(2)
    return model


def make_field(domain: Domain, **changes) -> GaussianParticleOperator:
    """The auto-encoder with the sizes of such a model."""
    return gaussian_field(make_problem(domain, **changes), make_config(**changes))


class PlainModel(AbstractModel):
    """A model of a few lines: what is said of forecasters holds whatever they wrap."""

    def __init__(self):
        super().__init__("plain", Problem(1, 1, Domain.unit_box(1)), NoConfig())
