"""Sections of the report by title, in the order of the page.

A section is a function that takes a `gpo.report.run_report.Report` and returns HTML; an empty text leaves
the section out. To add a figure from outside, register a section that draws it:

    def histogram(report):
        figure, axes = plt.subplots()
        axes.hist(report.run.shown.predicted.ravel())
        return report.figure("histogram", figure, alt="Histogram of the prediction")

    SECTIONS.register("Histogram", histogram)

A section may be text, `"module:attribute"`, which is imported when it is used. Nothing here imports
matplotlib.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpo.registry import Registry

if TYPE_CHECKING:
    from gpo.report.run_report import Report

SECTIONS: "Registry[Callable[[Report], str]]" = Registry(
    "section of the report",
    {
        "Scores on the test split": "gpo.report.sections:scores",
        "Comparison with references": "gpo.report.sections:comparisons",
        "Rollout": "gpo.report.sections:rollout",
        "A prediction of the test split": "gpo.report.sections:forecast",
        "Motion of particles": "gpo.report.sections:motion",
        "Particle reconstruction": "gpo.report.sections:reconstruction",
        "Particles": "gpo.report.sections:no_particles",
        "Activation by layer": "gpo.report.sections:layers",
        "Interpretability": "gpo.report.sections:interpretability",
        "Spectrum": "gpo.report.sections:spectrum",
        "Transfer to other sites": "gpo.report.sections:transfer",
        "Settings tried on validation data": "gpo.report.sections:settings_tried",
        "Training": "gpo.report.sections:training",
    },
)
"""Registered sections follow these; the configuration ends the page."""
