"""Captions of the figures and tables of a report, and sentences in place of missing figures."""

from gpo.evaluation.results import VALIDATION_CAVEAT, Results, format_score
from gpo.evaluation.spectrum import quantity_of
from gpo.interpretation.results import Interpretation, best_of

SCORES = (
    "RMSE is in the units of the variable, RMSE / std in standard deviations of the variable in the "
    "training data. The bias is the mean error; anomalies, which are correlated, are differences to the "
    "climatology, or to the training mean. The skill, in the row of a reference, is one minus the ratio of the RMSE of the "
    "first forecast to that of the reference: 1 is perfect, 0 is as good as the reference, below 0 is worse."
)
METRICS = "The last table has each metric over all variables, averaged over the test examples."
COMPARISONS = (
    "Ratio of the model's error to that of a reference, both in standard deviations of the training "
    "data, with an interval from a block bootstrap over the examples. The model is better where the "
    f"whole interval is below 1. {VALIDATION_CAVEAT}"
)
FORECAST = (
    "The last example of the test split, one row per variable, in the units of the data: input, truth, "
    "prediction, and absolute error on its own scale. Masked and missing sites are grey."
)
ROLLOUT = (
    "Relative L2 of forecasts applied to their own output, averaged over rollouts. Persistence repeats "
    "the initial frame; climatology is the mean of the training frames at each site."
)
TRAINING = "Training losses and validation score by epoch, on a logarithmic scale."
PARTICLES = (
    "The last input frame, and its reconstruction from particles: at each point the mean of the values "
    "of their sites, weighted by their Gaussians. Fine structure that is missing in the reconstruction "
    "reaches the layers through the sum over the particles of a site, not through their shapes. On the "
    "right, the particle of largest weight at some of the sites."
)
MOTION = (
    "The last input frame, and over it the displacements of the particles, one panel per particle. An "
    "arrow points from the center of a particle, the departure point from which the site samples the "
    "field, to the site; an ellipse there is one standard deviation of its Gaussian. A factor in the title "
    "scales the arrows. On a map, lengths are in degrees of "
    "longitude and latitude; in one dimension the displacement is a curve. Titles give the mean weight "
    "of a particle and its root mean square displacement, over the visible sites. Where the velocity is "
    "known it has its own panel, and titles give the vector correlation of displacement and velocity on "
    "this example. The control, in brackets, is the mean correlation with the velocity of other test "
    "examples at the same sites. Particles follow this flow only as far as the two differ."
)
MOTION_NOTE = (
    "The ablation of gpo interpret shows how much the prediction depends on this transport. Particles "
    "that move carry no values, so no field is reconstructed from them."
)
OTHER_DATA = (
    "The same figure for the test split (above) and for the other data of gpo interpret (below), whose "
    "fields differ from those of training."
)
NO_PARTICLES = "This run is the ablation without particles."
NO_LINE_RECONSTRUCTION = "The particle reconstruction is not drawn in one dimension."
WINDOW_LAYERS = (
    "From input to target: Σ z², which shows how the mass of a site is distributed over its Gaussians "
    "(their sum is the same in all layers), and one of the windows of each layer. Outlines show the "
    "Gaussian of largest weight at some of the sites; their half axes are a fixed fraction of its scales."
)
"""Caption of the layers of the paper's variant."""
WAVE_LAYERS = (
    "From input to target: the squared norm Σ h² of the state at each site, in normalised units, before "
    "the first layer and after each layer. Outlines show where some of the sites sample the field, each "
    "through its particle of largest weight; half axes are its scale. "
    "They are drawn after layers with transport only."
)
"""Caption of the layers of the geometric variant."""


def rollout_caption(results: Results, last: float) -> str:
    """Returns the caption of the animation, with the error of this rollout and of all rollouts.

    Args:
        results: Results with rollouts.
        last: Relative L2 of the shown rollout after its last step.
    """
    mean = results.rollout[results.written][-1]
    others = f"the mean of {results.num_rollouts} is {format_score(mean)}" if mean is not None else "others are no longer finite"  # fmt: skip
    return (
        "A forecast applied to its own output, from the last start of the test split. Colour scales are "
        "the same for all steps; that of the error is symmetric around zero, and at most as wide as the "
        "range of the truth. Masked and missing sites are grey. The relative L2 of this rollout after "
        f"the last step is {format_score(last)}; {others}."
    )


def motion_caption(interpretation: Interpretation | None) -> str:
    """Returns the caption of displacements, with the numbers of `gpo interpret` where available."""
    best = best_of(interpretation.motion) if interpretation is not None else None
    if interpretation is None or best is None:
        return f"{MOTION} {MOTION_NOTE}"
    numbers = ""
    if best["velocity_correlation"] is not None:
        numbers = (
            f" Over {interpretation.num_examples} test examples (gpo interpret), the most important "
            f"particle, number {best['particle'] + 1}, has a correlation of "
            f"{best['velocity_correlation']:+.2f} with the velocity; 95 % of the null distribution are "
            f"between {best['low']:+.2f} and {best['high']:+.2f}."
        )
    return f"{MOTION}{numbers}{viscosity_sentence(interpretation)} {MOTION_NOTE}"


def viscosity_sentence(interpretation: Interpretation) -> str:
    """Returns the viscosity that the most important particle implies, where a time step is known."""
    diffusion = interpretation.motion.get("diffusion", {"reason": ""})
    if "reason" in diffusion:
        return ""
    bound = "at most " if diffusion["is_at_floor"] else ""
    true = "" if diffusion["true"] is None else f"; the true one is {diffusion['true']:.2g}"
    return (
        f" The scale of the most important particle implies a viscosity of {bound}"
        f"{diffusion['best']:.2g} {diffusion['units']}, its scale before training "
        f"{diffusion['initial']:.2g}{true}."
    )


def spectrum_caption(results: Results) -> str:
    """Returns the caption of the spectra, by the quantities that they show."""
    quantities = {quantity_of(part) for part in results.spectrum.values() if "reason" not in part}
    sentences = []
    if "kinetic energy" in quantities:
        sentences.append(
            "Kinetic energy per mass by wave number, of the non-divergent flow without mean that has "
            "this vorticity (in radii and seconds on the sphere). Grey lines have the slopes of two-"
            "dimensional turbulence: k⁻⁵ᐟ³ for the inverse cascade of energy and k⁻³ for the cascade of "
            "enstrophy."
        )
    if "variance" in quantities:
        sentences.append("Variance by wave number or degree, in squared units of the variable.")
    if "half the variance" in quantities:
        sentences.append(
            "Half the variance by wave number or degree, as stored by gpo up to 0.4.0."
        )
    sentences.append(
        "The table has the error of one step at low, middle and high wave numbers: the square root of "
        "the ratio of its variance to that of the truth."
    )
    return " ".join(sentences)
