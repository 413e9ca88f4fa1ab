"""Curves and tables of finished experiments: rollouts, convergence, spectra and transfer."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpo.evaluation.spectrum import quantity_of
from gpo.training.run_folder import SCORE, SPENT, read_log
from gpo_bench.experiment import Experiment
from gpo_bench.protocol import Protocol
from gpo_bench.table import Entry, Table

Curves = dict[str, tuple[list[float], list[float]]]
"""Abscissae and ordinates by name."""
REFERENCES = ("persistence", "climatology")


def collect_rollouts(experiments: Sequence[Experiment], root: Path) -> Curves:
    """Returns the error of finished experiments after each step, averaged over seeds.

    A curve ends where the forecast of a seed becomes non-finite.
    """
    errors: dict[str, list[list[float]]] = {}
    for experiment in _finished(experiments, root):
        rollout = experiment.results(root).rollout
        for name in REFERENCES:
            if name in rollout:
                errors.setdefault(name, [_until_none(rollout[name])])
        errors.setdefault(experiment.row, []).append(_until_none(rollout["model"]))
    curves: Curves = {}
    for name, seeds in errors.items():
        means = [sum(step) / len(step) for step in zip(*seeds, strict=False)]
        curves[name] = [float(step) for step in range(1, len(means) + 1)], means
    return curves


def collect_convergence(experiments: Sequence[Experiment], root: Path) -> Curves:
    """Returns the validation error after each epoch against CPU seconds, of the first seed."""
    curves: Curves = {}
    for experiment in _finished(experiments, root):
        if experiment.row in curves:
            continue
        log = read_log(experiment.run_folder(root))
        rows = [row for row in log if SPENT in row and SCORE in row]
        curves[experiment.row] = [row[SPENT] for row in rows], [row[SCORE] for row in rows]
    return curves


def convergence_table(curves: Curves, column: str, protocol: Protocol) -> Table:
    """Returns the validation error after an eighth, a quarter, half and all of the budget."""
    times = [protocol.amount * fraction for fraction in (0.125, 0.25, 0.5, 1.0)]
    table = Table(
        f"Validation error on {column} against CPU time, {protocol.name} protocol", "model",
        [f"{time:g} s" for time in times],
    )  # fmt: skip
    for name, (seconds, errors) in curves.items():
        entries = []
        for time in times:
            # The last step may end slightly after the budget.
            reached = [e for s, e in zip(seconds, errors, strict=True) if s <= 1.05 * time]
            entries.append(Entry(reached[-1]) if reached else Entry(note="no epoch yet"))
        table.add(name, entries)
    table.notes.append(
        "Relative L2 on validation data after the last epoch before each time. The learning rate "
        "is still high then, so a run with a smaller budget would be better. First seed. "
        f"{protocol}."
    )
    return table


def rollout_table(curves: Curves, column: str, protocol: Protocol) -> Table:
    """Returns the error after 1, 5, 10, 15 and all steps; a dash for diverged forecasts."""
    longest = max((len(errors) for _, errors in curves.values()), default=1)
    steps = [step for step in (1, 5, 10, 15) if step < longest] + [longest]
    table = Table(
        f"Relative L2 of a rollout on {column}, {protocol.name} protocol", "model",
        [f"step {step}" for step in steps], unranked=frozenset(REFERENCES),
    )  # fmt: skip
    for name, (_, errors) in curves.items():
        diverged = Entry(note="diverged")
        entries = [Entry(errors[s - 1]) if s <= len(errors) else diverged for s in steps]
        table.add(name, entries)
    table.notes.append(f"{protocol}.")
    return table


def collect_spectra(
    experiments: Sequence[Experiment], root: Path
) -> tuple[Curves, Mapping[str, str]]:
    """Returns spectra of the first variable at the end of a rollout, and their description.

    The description has the `quantity`, variance or kinetic energy, and the `label` of the scale.
    Experiments whose description differs from the first one are omitted.
    """
    curves: Curves = {}
    about: dict[str, str] = {}
    for experiment in _finished(experiments, root):
        spectrum = _first_spectrum(experiment, root)
        if "truth at the end" not in spectrum:
            continue
        description = {"quantity": quantity_of(spectrum), "label": spectrum["label"]}
        about = about or description
        if description != about:
            continue
        wavenumbers = [float(number) for number in spectrum["wavenumbers"][1:]]
        for name, key in (("truth", "truth at the end"), (experiment.row, "model at the end")):
            if key in spectrum:
                curves.setdefault(
                    name, (wavenumbers, [float(value) for value in spectrum[key][1:]])
                )
    return curves, about


def spectrum_table(
    experiments: Sequence[Experiment], root: Path, column: str, protocol: Protocol
) -> Table:
    """Returns the one-step error at low, middle and high wavenumbers."""
    bins = ("low", "middle", "high")
    table = Table(
        f"Spectral error of one step on {column}, {protocol.name} protocol", "model", bins
    )
    for experiment in _finished(experiments, root):
        spectrum = _first_spectrum(experiment, root)
        errors = spectrum.get("errors", {})
        reason = "" if errors else spectrum.get("reason", "")
        table.add(experiment.row, [Entry(errors.get(name), note=reason) for name in bins])
    table.notes.append(
        "Root of the ratio of the variances of error and truth, in bins of equal width in log k. "
        f"{protocol}."
    )
    return table


def transfer_table(
    experiments: Sequence[Experiment], root: Path, column: str, protocol: Protocol
) -> Table:
    """Returns relative L2 on coarser and finer grids and on a subset of the sites."""
    errors = {
        experiment.row: experiment.results(root).resolution
        for experiment in _finished(experiments, root)
    }
    sites = list(dict.fromkeys(name for by_sites in errors.values() for name in by_sites))
    table = Table(f"Transfer to other sites on {column}, {protocol.name} protocol", "model", sites)
    for row, by_sites in errors.items():
        training_error = by_sites["1x"].get("model")
        entries = []
        for name in sites:
            error = by_sites.get(name, {}).get("model")
            if isinstance(error, float) and isinstance(training_error, float):
                note = "" if name == "1x" else f"{error / training_error:.2f} of 1x"
                entries.append(Entry(error, note=note))
            else:
                reason = by_sites.get(name, {}).get("reason", "not scored")
                entries.append(Entry(note=str(reason)))
        table.add(row, entries)
    table.notes.append(
        "1x are the training sites. 2x has true data at twice the resolution along each axis, "
        "unless marked interpolated. Numbers in parentheses are ratios to the error at 1x. "
        f"{protocol}."
    )
    return table


def _until_none(errors: Sequence[float | None]) -> list[float]:
    finite: list[float] = []
    for error in errors:
        if error is None:
            break
        finite.append(error)
    return finite


def _finished(experiments: Sequence[Experiment], root: Path) -> Iterator[Experiment]:
    return (experiment for experiment in experiments if experiment.outcome(root) is not None)


def _first_spectrum(experiment: Experiment, root: Path) -> Mapping[str, Any]:
    return next(iter(experiment.results(root).spectrum.values()))
