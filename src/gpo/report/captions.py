"""What is said below and instead of the figures of a run."""

from gpo.evaluation.results import FLATTERING, Results, shown_number
from gpo.evaluation.spectrum import quantity_of
from gpo.interpretation.attribution import best_of
from gpo.interpretation.results import Interpretation

SCORES = (
    "RMSE is in the units of the variable; RMSE / std in standard deviations of the variable in the "
    "training data, which no unit enters. Skill is one minus the ratio of the model's RMSE to that "
    "of a reference: 1 is perfect, 0 as good as the reference, below 0 worse."
)
"""What the columns of the scores are."""
COMPARISONS = (
    "The error of the model relative to that of a reference, both in standard deviations of the "
    "training data, with an interval from a bootstrap over blocks of examples. It is better where "
    f"the whole interval is below 1. {FLATTERING}"
)
"""Caption of the comparisons with references."""
CAPTIONS = {
    "forecast": (
        "The last example of the test split, one row per variable, in the units of the data: what was "
        "given, what followed, what the model predicted, and the absolute difference of both, on a "
        "scale of its own. Masked and missing sites are grey."
    ),
    "rollout": (
        "Relative L2 of forecasts that start from forecasts, the mean over rollouts. Persistence "
        "leaves the start as it is; climatology is the mean of the training frames at every site."
    ),
    "training": (
        "Losses of training and the score on validation data by epoch, on a logarithmic scale."
    ),
    "particles": (
        "The last input frame, and its reconstruction from particles: at every point the mean of the "
        "values of their sites, weighted with their Gaussians. Fine structure that is missing in the "
        "reconstruction reaches the layers as the sum over the particles of one site, not as their "
        "shapes. On the right, the heaviest particle of some sites."
    ),
}
"""By figure."""
ALTS = {
    "forecast": "Input, truth, prediction and absolute error of the last test example",
    "layers": "Input, state of every layer and target of the last test example",
    "particles": "Input, its reconstruction from particles, difference, and particles",
    "motion": "Arrows of particle displacements over the input field",
    "rollout": "Relative L2 against steps ahead, of the model and of references",
    "spectrum": "Spectra of truth and model",
    "training": "Losses and validation score by epoch",
}
"""What each shows, for those who do not see it."""
MOTION = (
    "The last input frame, and over it the particles of every site, a panel for each. An arrow "
    "leads from the center of a particle, where what arrives at the site came from, to the site, "
    "lengthened by a factor where the title names one; on a map it is as long as in longitude "
    "and latitude, on a line there is a curve. Titles give the fraction of "
    "what arrives that a particle brings, by size, and the root mean square of its displacement, "
    "both over the sites in view. Where the velocity is known it has a panel of its own, and titles "
    "give the vector correlation of displacement and velocity on this example; the control, in "
    "brackets, is the mean correlation with the velocity of other test examples at the same sites. "
    "Only the difference of the two says that particles follow this flow."
)
"""Caption of the motion of particles."""
NEEDED = (
    "How much arrives, and whether the prediction needs it, the ablation of gpo interpret tells. Such "
    "particles carry no values, so that no field is reconstructed from them."
)
OTHER = (
    "The same for the test split, above, and for the other data that gpo interpret was given, "
    "below: the particles of fields unlike those of training."
)
"""Caption of the particles of other data."""
NO_PARTICLES = "This run is the ablation without particles."
"""In place of a picture of them."""
LINE = "On a line no particle reconstruction is drawn."
"""In place of that picture."""
CONTENT_LAYERS = (
    "From input to target: how the mass of a site is spread over its Gaussians, Σ z² (their sum does "
    "not change from layer to layer), and one of the windows through which a layer measures. Outlines "
    "are the heaviest Gaussian of some sites, their half axes a fixed part of its scales."
)
"""Caption of the layers of the paper's variant."""
WAVE_LAYERS = (
    "From input to target: the squared length Σ h² of the state of every site, in normalised units, "
    "before the first layer and after each. Outlines are footprints of particles: where some sites "
    "look, each through the particle that brings it most, as wide as the hat of the lattice. They are "
    "drawn after the layers that look."
)
"""Caption of the layers of the geometric variant."""


def rollout_caption(results: Results, last: float) -> str:
    """Returns what the animation shows, and how its end compares with other rollouts.

    Args:
        results: With the mean over all rollouts.
        last: Relative L2 of this one after its last step.
    """
    mean = results.rollout["model"][-1]
    many = f"the mean of {results.num_rollouts} is {shown_number(mean)}" if mean is not None else "others are no longer finite"  # fmt: skip
    return (
        "A forecast that starts from its own forecasts, from the last start of the test split. Colours "
        "are the same for all steps; those of the error reach from minus to plus its largest value, "
        "and no farther than the truth varies. Masked and missing sites are grey. This rollout ends "
        f"with a relative L2 of {shown_number(last)}; {many}."
    )


def motion_caption(found: Interpretation | None) -> str:
    """Returns what arrows are, with the numbers of `gpo interpret` where it was run."""
    best = best_of(found.motion) if found is not None else None
    told = ""
    if best is not None and best["velocity_correlation"] is not None:
        assert found is not None
        told = (
            f" Over {found.num_examples} test examples (gpo interpret), the particle that carries most, "
            f"number {best['particle'] + 1}, has a correlation of {best['velocity_correlation']:+.2f} "
            f"with the velocity; 95 % of its null lie between {best['low']:+.2f} and {best['high']:+.2f}."
        )
    return f"{MOTION}{told} {NEEDED}"


def spectrum_caption(results: Results) -> str:
    """Returns what the spectra are of."""
    kinds = {quantity_of(part) for part in results.spectrum.values() if "reason" not in part}
    told = []
    if "kinetic energy" in kinds:
        told.append(
            "Kinetic energy per mass by wave number, of the flow without mean and divergence that has "
            "this vorticity (in radii and seconds on the sphere); grey lines have the slopes of two-"
            "dimensional turbulence, k⁻⁵ᐟ³ for an inverse cascade of energy and k⁻³ for a cascade of "
            "enstrophy."
        )
    if "variance" in kinds:
        told.append("Variance by wave number or degree, in squared units of the variable.")
    if "half the variance" in kinds:
        told.append("Half the variance by wave number or degree, as gpo up to 0.4.0 stored it.")
    told.append(
        "The table has the error of one step at low, middle and high wave numbers: the root of its "
        "variance over that of the truth."
    )
    return " ".join(told)
