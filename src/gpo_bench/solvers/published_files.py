"""Writes data in the layouts of published benchmarks, for their readers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import h5py
import numpy as np

from gpo.data.dataset import FieldData
from gpo.data.readers.fno import AIRFOIL_FILES, check_shapes
from gpo.data.readers.hdf5 import dataset
from gpo.data.readers.pdebench import AXES, FLOW
from gpo.data.readers.sites import component_names

FRAMES_AT_ONCE = 64
"""Frames that are written at once."""


def write_airfoil(folder: Path, x: np.ndarray, y: np.ndarray, q: np.ndarray) -> None:
    """Writes the three files.

    Args:
        folder: The folder, which is created if necessary.
        x: Horizontal coordinates of shape (samples, rows, columns).
        y: Vertical coordinates of the same shape.
        q: Flow of shape (samples, channels, rows, columns); channel 4 is the Mach number.
    """
    check_shapes(folder, x.shape, y.shape, q.shape)
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in zip(AIRFOIL_FILES, (x, y, q), strict=True):
        np.save(folder / name, values, allow_pickle=False)


def write_mesh_series(path: Path, trajectories: FieldData) -> None:
    """Writes one group per trajectory; components such as velocity_x and velocity_y as one field.

    Args:
        path: The file.
        trajectories: Time series on meshes; each geometry must have triangles.
    """
    names = [variable.name for variable in trajectories.variables]
    with h5py.File(path, "w") as file:
        for trajectory in range(trajectories.num_samples):
            geometry = trajectories.geometry(trajectory)
            if geometry.triangles is None:
                raise ValueError("Every geometry must have triangles to be written as a mesh.")
            group = file.create_group(f"{trajectory}")
            group["mesh_pos"], group["cells"] = geometry.coords, geometry.triangles
            group["time"] = trajectories.time
            group["time"].attrs["units"] = trajectories.time_units
            for name, values in trajectories.parameters.items():
                group[name] = values[trajectory]
            fields = _vectors(names, geometry.coords.shape[1])
            for start in range(0, len(trajectories.time), FRAMES_AT_ONCE):
                times = slice(start, start + FRAMES_AT_ONCE)
                frames = trajectories.frames(trajectory, times)
                for name, channels in fields.items():
                    if start == 0:
                        shape = (len(trajectories.time), len(geometry.coords), len(channels))
                        field = group.create_dataset(name, shape, frames.dtype)
                        field.attrs["units"] = trajectories.variables[channels[0]].units
                    dataset(path, group, name)[times] = frames[..., channels]


def _vectors(names: list[str], dim: int) -> dict[str, list[int]]:
    """Returns the channels of each field: name_x, name_y (, name_z), or a single variable."""
    fields: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        stem = name.removesuffix("_x").removesuffix("_y").removesuffix("_z")
        parts = component_names(stem, dim, dim)
        if dim > 1 and name in parts and all(part in names for part in parts):
            fields[stem] = [names.index(part) for part in parts]
        else:
            fields[name] = [index]
    return fields


def write_pdebench(
    path: Path,
    *,
    axes: Sequence[np.ndarray],
    time: np.ndarray,
    fields: Mapping[str, np.ndarray],
    parameters: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Writes a flow file with the published keys and shapes, in single precision.

    Args:
        path: The file.
        axes: Centres of the cells along x, y and z, one to three axes.
        time: Times of the frames; the end of the last step is appended.
        fields: density, pressure, Vx and so on, of shape (samples, times, grid).
        parameters: Parameters of the flow, such as the viscosities eta and zeta.
    """
    expected = FLOW[: 2 + len(axes)]
    if set(fields) != set(expected):
        raise ValueError(f"`fields` must be {', '.join(expected)}, got {', '.join(fields)}.")
    shape = (len(fields["density"]), len(time), *(len(axis) for axis in axes))
    step = time[-1] - time[-2] if len(time) > 1 else 1.0
    with h5py.File(path, "w", libver=("earliest", "v108")) as file:
        for name in expected:
            if fields[name].shape != shape:
                raise ValueError(f"`{name}` must have shape {shape}, got {fields[name].shape}.")
            file.create_dataset(name, data=np.asarray(fields[name], np.float32))
        for name, axis in zip(AXES, axes, strict=False):
            file.create_dataset(f"{name}-coordinate", data=np.asarray(axis, np.float32))
        times = np.append(time, time[-1] + step).astype(np.float32)
        file.create_dataset("t-coordinate", data=times)
        file.attrs.update({name: float(value) for name, value in parameters.items()})
