"""The files beside a model: its task in `task.json`, pointwise means and fitted references.

`task.json` has the checksums of the others and of itself.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from safetensors.torch import load, save
from torch import Tensor

from gpo.atomic_files import atomic_file, file_problem, write_text
from gpo.forecast.references import AbstractContinuation, AbstractReference, base_of
from gpo.forecast.registry import REFERENCES
from gpo.forecast.statistics import SiteMeans
from gpo.forecast.task import OWN_BASES, STATISTICS, BlendWeights, Task
from gpo.model.checkpoint import CheckpointError, build, check_numbers, sha256
from gpo.settings_files import CONTENT_CHECKSUM, check_checksum, checksum_of, read_json

TASK_NAME = "task.json"
FILE_NAME = "references.safetensors"
MEANS_CHECKSUM = "site_means_sha256"
"""Field of `task.json`: the checksum of the file of pointwise means."""
REFERENCES_CHECKSUM = "references_sha256"
"""Field of `task.json`: the checksum of the file of fitted references."""
TREND = ("trend", "remainder")
"""Statistics of a base with a trend; empty for others."""


def save_task(
    folder: Path,
    task: Task,
    means: SiteMeans | None,
    references: Mapping[str, AbstractReference],
) -> None:
    """Writes a task, its pointwise means and its references into the folder of a model."""
    stored = asdict(task)
    if means is not None:
        means.save(folder)
        stored[MEANS_CHECKSUM] = means.sha256()
    if references:
        stored[REFERENCES_CHECKSUM] = save_references(folder, references)
    stored = json.loads(json.dumps(stored))
    stored[CONTENT_CHECKSUM] = checksum_of(stored)
    write_text(folder / TASK_NAME, json.dumps(stored, indent=2) + "\n")


def load_task(folder: Path) -> tuple[Task, SiteMeans | None, dict[str, AbstractReference]]:
    """Returns the task, means and references that `save_task` wrote."""
    path = folder / TASK_NAME
    content = stored = read_json(path)
    if "trained_on" not in stored:
        raise CheckpointError(
            f"{path}: was written by a version before 0.4.0, without metadata of the training "
            "data. Train the run again."
        )
    # Versions before 0.5.0 had no trend, those before 0.8.0 neither bounds nor references.
    added = {**{name: [] for name in (*TREND, "non_negative")}, "blend": asdict(BlendWeights())}
    stored = {**added, "base": "trend" if stored.get("trend") else "persistence", **stored}
    checksum, listed = stored.pop(MEANS_CHECKSUM, ""), stored.pop(REFERENCES_CHECKSUM, "")
    stored.pop(CONTENT_CHECKSUM, None)
    task = build(Task, stored, str(path))
    for name in (*STATISTICS, *TREND):
        if not all(map(math.isfinite, getattr(task, name))):
            raise CheckpointError(f"{path}: field `{name}` must be finite numbers.")
        if name.endswith("_std") and not all(part > 0 for part in getattr(task, name)):
            raise CheckpointError(f"{path}: field `{name}` must be above 0.")
    check_checksum(path, content)
    means = SiteMeans.load(folder, checksum) if task.is_per_site else None
    own = () if task.base in OWN_BASES else (task.base,)
    names, references = dict.fromkeys((*task.blend.forecasts[1:], *own)), {}
    if names:
        references = load_references(folder, task, [*names], listed)
    if not isinstance(base_of(task, references), AbstractContinuation):
        problem = "must continue each point from its own past"
        raise CheckpointError(f"{path}: field `base` {problem}, got {task.base}.")
    return task, means, references


def packed(references: Mapping[str, AbstractReference]) -> bytes:
    """Returns fitted references as the content of a file."""
    named = {
        f"{name}/{key}": value.detach().cpu().contiguous().clone()
        for name, reference in references.items()
        for key, value in reference.tensors().items()
    }
    return save(named)


def save_references(folder: Path, references: Mapping[str, AbstractReference]) -> str:
    """Writes fitted references into the folder of a model, and returns the checksum of the file."""
    content = packed(references)
    with atomic_file(folder / FILE_NAME) as partial:
        partial.write_bytes(content)
    return sha256(content)


def load_references(
    folder: Path, task: Task, names: Sequence[str], checksum: str
) -> dict[str, AbstractReference]:
    """Returns the named references that `save_references` wrote; raises an error for another file."""
    path = folder / FILE_NAME
    problem = file_problem(path)
    if problem is not None:
        raise CheckpointError(f"{path} {problem}")
    if not path.exists():
        raise CheckpointError(f"{path}: is missing; it holds the references {', '.join(names)}.")
    content = path.read_bytes()
    if sha256(content) != checksum:
        raise CheckpointError(f"{path}: has changed since it was saved: its SHA-256 differs.")
    # Persistence and others without numbers are not in the file.
    found: dict[str, dict[str, Tensor]] = {name: {} for name in names}
    try:
        for key, value in load(content).items():
            name, _, part = key.partition("/")
            check_numbers(value, value.dtype, path, key)
            found[name][part] = value
        return {name: REFERENCES.find(name)(task, **parts) for name, parts in found.items()}
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
