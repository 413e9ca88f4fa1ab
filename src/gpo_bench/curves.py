"""Figures and tables over finished experiments.

Error against step, error against CPU time, spectra, and error at other sites.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpo.evaluation.spectrum import quantity_of
from gpo.training.run_folder import SCORE, SPENT, read_log
from gpo_bench.experiment import Experiment
from gpo_bench.protocol import Protocol
from gpo_bench.table import Entry, Table

Curves = dict[str, tuple[list[float], list[float]]]
"""By name, positions along the horizontal axis and the heights there."""


def collect_rollouts(experiments: Sequence[Experiment], root: Path) -> Curves:
    """Returns the error after every step of finished experiments, the mean over their seeds.

    A curve ends where the forecasts of a seed are no longer finite.
    """
    errors: dict[str, list[list[float]]] = {}
    for experiment in experiments:
        if experiment.outcome(root) is None:
            continue
        rollout = experiment.results(root).rollout
        for who in ("persistence", "climatology"):
            if who in rollout:
                errors.setdefault(who, [_until_none(rollout[who])])
        errors.setdefault(experiment.row, []).append(_until_none(rollout["model"]))
    curves: Curves = {}
    for name, seeds in errors.items():
        heights = [sum(step) / len(step) for step in zip(*seeds, strict=False)]
        curves[name] = [float(step) for step in range(1, len(heights) + 1)], heights
    return curves


def _until_none(errors: Sequence[float | None]) -> list[float]:
    finite: list[float] = []
    for error in errors:
        if error is None:
            break
        finite.append(error)
    return finite


def collect_convergence(experiments: Sequence[Experiment], root: Path) -> Curves:
    """Returns the validation error of the first seed of finished experiments after every epoch, against CPU seconds."""
    curves: Curves = {}
    for experiment in experiments:
        if experiment.outcome(root) is None or experiment.row in curves:
            continue
        log = [row for row in read_log(experiment.run(root)) if SPENT in row and SCORE in row]
        curves[experiment.row] = [row[SPENT] for row in log], [row[SCORE] for row in log]
    return curves


def convergence_table(curves: Curves, column: str, protocol: Protocol) -> Table:
    """Returns the validation error after an eighth, a quarter, half and all of the budget."""
    moments = [protocol.amount * fraction for fraction in (0.125, 0.25, 0.5, 1.0)]
    table = Table(
        f"Validation error on {column} against CPU time, {protocol.name} protocol", "model",
        [f"{moment:g} s" for moment in moments],
    )  # fmt: skip
    for name, (seconds, heights) in curves.items():
        entries = []
        for moment in moments:
            # The last step may end a little after the budget.
            reached = [h for s, h in zip(seconds, heights, strict=True) if s <= 1.05 * moment]
            entries.append(Entry(reached[-1]) if reached else Entry(note="no epoch yet"))
        table.add(name, entries)
    table.notes.append(
        f"Relative L2 on validation data after the last epoch before a moment, while the learning "
        f"rate still falls: a run with a smaller budget would end lower. First seed. {protocol}."
    )
    return table


def rollout_table(curves: Curves, column: str, protocol: Protocol) -> Table:
    """Returns the error after 1, 5, 10, 15 and the last step; a dash where it diverged."""
    longest = max((len(heights) for _, heights in curves.values()), default=1)
    steps = [step for step in (1, 5, 10, 15) if step < longest] + [longest]
    table = Table(
        f"Relative L2 of a rollout on {column}, {protocol.name} protocol", "model",
        [f"step {step}" for step in steps], unranked=frozenset(("persistence", "climatology")),
    )  # fmt: skip
    for name, (_, heights) in curves.items():
        diverged = Entry(note="diverged")
        entries = [Entry(heights[s - 1]) if s <= len(heights) else diverged for s in steps]
        table.add(name, entries)
    table.notes.append(f"{protocol}.")
    return table


def collect_spectra(
    experiments: Sequence[Experiment], root: Path
) -> tuple[Curves, Mapping[str, str]]:
    """Returns spectra at the end of a rollout, of the first variable, and what they are of.

    The second part has the `quantity`, variance or kinetic energy, and the `label` of the scale.
    Experiments whose spectra are of another quantity than the first one's are left out.
    """
    curves: Curves = {}
    about: dict[str, str] = {}
    for experiment in experiments:
        if experiment.outcome(root) is None:
            continue
        part = next(iter(experiment.results(root).spectrum.values()))
        if "truth at the end" not in part:
            continue
        mine = {"quantity": quantity_of(part), "label": part["label"]}
        about = about or mine
        if mine != about:
            continue
        numbers = [float(number) for number in part["wavenumbers"][1:]]
        for name, who in (("truth", "truth"), (experiment.row, "model")):
            if f"{who} at the end" in part:
                power = [float(value) for value in part[f"{who} at the end"][1:]]
                curves.setdefault(name, (numbers, power))
    return curves, about


def spectrum_table(
    experiments: Sequence[Experiment], root: Path, column: str, protocol: Protocol
) -> Table:
    """Returns the error of one step at low, middle and high wave numbers."""
    bins = ("low", "middle", "high")
    table = Table(
        f"Spectral error of one step on {column}, {protocol.name} protocol", "model", bins
    )
    for experiment in experiments:
        if experiment.outcome(root) is None:
            continue
        part = next(iter(experiment.results(root).spectrum.values()))
        errors = part.get("errors", {})
        table.add(experiment.row, [Entry(errors.get(name), note="" if errors else part.get("reason", "")) for name in bins])  # fmt: skip
    table.notes.append(
        f"Root of the variance of the error over the variance of the truth, in bins equal in log k. {protocol}."
    )
    return table


def transfer_table(
    experiments: Sequence[Experiment], root: Path, column: str, protocol: Protocol
) -> Table:
    """Returns relative L2 on coarser and finer grids and on a part of the sites, or the reason."""
    errors = {
        experiment.row: experiment.results(root).resolution
        for experiment in experiments
        if experiment.outcome(root)
    }
    sites = list(dict.fromkeys(name for by_sites in errors.values() for name in by_sites))
    table = Table(
        f"Sites a model has not learned on: {column}, {protocol.name} protocol", "model", sites
    )
    for name, by_sites in errors.items():
        at_training_sites = by_sites["1x"].get("model")
        entries = []
        for which in sites:
            error = by_sites.get(which, {}).get("model")
            if isinstance(error, float) and isinstance(at_training_sites, float):
                note = "" if which == "1x" else f"{error / at_training_sites:.2f} of 1x"
                entries.append(Entry(error, note=note))
            else:
                reason = by_sites.get(which, {}).get("reason", "not scored")
                entries.append(Entry(note=str(reason)))
        table.add(name, entries)
    table.notes.append(
        "1x are the sites of training. 2x has the truth at double resolution along every axis, "
        f"unless it says interpolated. In brackets multiples of the error at 1x. {protocol}."
    )
    return table
