import pytest

from gpo import (
    GaussianParticleOperator,
    PaperConfig,
    Problem,
    count_parameters,
    paper_ablation,
    preset,
)
from gpo.model.presets import ABLATIONS, PRESETS
from tests.conftest import make_config, make_problem

PAPER = {
    "ns2d": (128, 8, 8, 32),
    "ns3d": (64, 8, 4, 16),
    "era5-temp": (64, 4, 4, 16),
    "era5-wind": (64, 4, 4, 16),
    "carra": (64, 4, 4, 16),
    "airfoil": (64, 4, 4, 16),
    "turbulent": (128, 8, 8, 32),
    "planetswe": (64, 8, 4, 16),
}


def expected_count(problem: Problem, config: PaperConfig) -> int:
    """The closed form of docs/paper.md, for a model with Fourier features."""
    h, g, layers, heads = (
        config.hidden_dim,
        config.num_gaussians,
        config.num_layers,
        config.num_heads,
    )
    d, head_dim = problem.domain.dim, h // heads

    def linear(inputs: int, outputs: int) -> int:
        return inputs * outputs + outputs

    encoder = linear(problem.in_channels + 2 * config.num_frequencies, h)
    encoder += 3 * linear(h, h) + 2 * linear(h, g * d) + linear(h, g)
    layer = linear(g * (2 + 2 * d), h) + h * g + 3 * h * head_dim + g * h + h * g
    return encoder + layers * layer + linear(g, h) + linear(h, problem.out_channels)


def test_presets_are_the_papers_table():
    assert list(PRESETS) == list(PAPER)
    for name, sizes in PAPER.items():
        _, config = preset(name)
        assert (
            config.hidden_dim,
            config.num_layers,
            config.num_heads,
            config.num_gaussians,
        ) == sizes


@pytest.mark.parametrize("name", PAPER)
def test_parameter_counts_are_their_closed_form(name):
    assert count_parameters(*preset(name)) == expected_count(*preset(name))


def test_a_reading_of_the_paper_has_exactly_its_number_of_parameters():
    problem, config = preset(
        "ns2d", input_coordinates=True, num_frequencies=64, token_width=512, has_biases=True,
        shares_windows=True, learns_mixing=True, learns_temperature=True,
    )  # fmt: skip
    assert count_parameters(problem, config) == 1_598_257
    assert count_parameters(*preset("ns2d")) == 423_969


def test_counting_builds_no_model_yet_counts_the_built_one(domain):
    for changes in ({}, {"share_layers": True}, {"features": "mlp"}, {"has_gaussian_field": False}):
        problem, config = make_problem(domain), make_config(**changes)
        built = sum(p.numel() for p in GaussianParticleOperator(problem, config).parameters())
        assert count_parameters(problem, config) == built


def test_a_preset_can_be_changed():
    problem, config = preset("ns2d", num_layers=2)
    assert (problem, config.num_layers) == (preset("ns2d")[0], 2)


def test_an_unknown_preset_lists_the_known():
    with pytest.raises(ValueError, match=r"one of ns2d, ns3d, .*planetswe, got 'ns4d'"):
        preset("ns4d")


@pytest.mark.parametrize("name", ABLATIONS)
@pytest.mark.parametrize("base", ["ns2d", "era5-temp"])
def test_ablations_have_a_comparable_parameter_count(name, base):
    problem, config = preset(base)
    changed = paper_ablation(name, problem, config)
    size = count_parameters(problem, config)
    assert count_parameters(problem, changed) == pytest.approx(size, rel=0.08)
    for field, value in ABLATIONS[name].items():
        assert vars(changed)[field] == value


def test_an_unknown_ablation_lists_the_known():
    with pytest.raises(ValueError, match=r"one of without-pg-operator, .*got 'without-attention'"):
        paper_ablation("without-attention", *preset("ns2d"))
