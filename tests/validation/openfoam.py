"""Runs OpenFOAM on a C-mesh of ours: writes the case, calls the solver, reads the fields."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from gpo_bench.solvers.airfoil_mesh import merge_wake_nodes, num_wake

SOLVER = shutil.which("rhoCentralFoam")

CONTROL = """
application rhoCentralFoam; startFrom startTime; startTime 0; stopAt endTime; endTime {steps};
deltaT 1; writeControl timeStep; writeInterval {steps}; purgeWrite 0; writeFormat ascii;
writePrecision 10; writeCompression off; timeFormat general; timePrecision 8;
runTimeModifiable no; adjustTimeStep yes; maxCo {courant}; maxDeltaT 1;
"""
SCHEMES = """
fluxScheme Kurganov; ddtSchemes { default localEuler; } gradSchemes { default Gauss linear; }
divSchemes { default none; div(tauMC) Gauss linear; } laplacianSchemes { default Gauss linear corrected; }
interpolationSchemes { default linear; reconstruct(rho) vanLeer; reconstruct(U) vanLeerV;
reconstruct(T) vanLeer; } snGradSchemes { default corrected; }
"""
SOLUTION = """
solvers { "(rho|rhoU|rhoE)" { solver diagonal; } U { solver smoothSolver; smoother GaussSeidel;
nSweeps 2; tolerance 1e-10; relTol 0; } e { $U; } }
PIMPLE { maxCo %(courant)s; maxDeltaT 1; rDeltaTSmoothingCoeff 0.5; }
"""
GAS = """
thermoType { type hePsiThermo; mixture pureMixture; transport const; thermo hConst;
equationOfState perfectGas; specie specie; energy sensibleInternalEnergy; }
mixture { specie { molWeight 11640.3; } thermodynamics { Cp 2.5; Hf 0; }
transport { mu 0; Pr 1; } }
"""


def solve(
    folder: Path,
    nodes: np.ndarray,
    start: np.ndarray,
    *,
    mach: float,
    angle: float,
    steps: int,
    courant: float = 0.4,
) -> np.ndarray:
    """Returns density, velocities and pressure in all cells of a mesh, around by outwards.

    Args:
        folder: Where the case goes.
        nodes: Nodes of a C-mesh, around by out by 2.
        start: The same channels to begin with; where it is steady does not depend on them.
        mach: Mach number of the far field, whose speed of sound and density are one.
        angle: Angle of attack in degrees.
        steps: Steps of local length.
        courant: Cells that a wave crosses in a step.
    """
    around, out = nodes.shape[0] - 1, nodes.shape[1] - 1
    _write_mesh(folder / "constant" / "polyMesh", nodes)
    numbers = {"steps": steps, "courant": courant}
    control = CONTROL.format(**numbers)
    for name, text in (
        ("system/controlDict", control), ("system/fvSchemes", SCHEMES),
        ("system/fvSolution", SOLUTION % numbers), ("constant/thermophysicalProperties", GAS),
        ("constant/turbulenceProperties", "simulationType laminar;"),
    ):  # fmt: skip
        _write(folder / name, "dictionary", text)
    velocity = mach * np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle))])
    u = f"({velocity[0]:.12g} {velocity[1]:.12g} 0)"
    pressure = f"{1 / 1.4:.12g}"
    density, along, up, its_pressure = start.reshape(4, -1)
    scalar, vector = ("volScalarField", "scalar"), ("volVectorField", "vector")
    _write_field(
        folder / "0" / "p", *scalar, "[1 -1 -2 0 0 0 0]", map(str, its_pressure),
        f"type freestreamPressure; freestreamValue uniform {pressure};", "type zeroGradient;",
    )  # fmt: skip
    _write_field(
        folder / "0" / "T", *scalar, "[0 0 0 1 0 0 0]", map(str, 1.4 * its_pressure / density),
        "type inletOutlet; inletValue uniform 1; value uniform 1;", "type zeroGradient;",
    )  # fmt: skip
    _write_field(
        folder / "0" / "U", *vector, "[0 1 -1 0 0 0 0]",
        (f"({x} {y} 0)" for x, y in zip(along, up, strict=True)),
        f"type freestreamVelocity; freestreamValue uniform {u};", "type slip;",
    )  # fmt: skip
    # Debian's package is not told where its own settings lie.
    env = {"WM_PROJECT_DIR": "/usr/share/openfoam", **os.environ}
    done = subprocess.run(
        [SOLVER, "-case", str(folder)], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    last = folder / str(steps)
    p, t, v = (_read_field(last / name, around * out) for name in ("p", "T", "U"))
    p, t = p[:, 0], t[:, 0]
    return np.stack([1.4 * p / t, v[:, 0], v[:, 1], p]).reshape(4, around, out)


def _write_mesh(folder: Path, nodes: np.ndarray) -> None:
    """Writes one layer of cells; both sides of the wake become one."""
    around, out = nodes.shape[0] - 1, nodes.shape[1] - 1
    wake = num_wake(around)
    kept, number = merge_wake_nodes(around, out)
    flat = nodes.reshape(-1, 2)[kept]
    count = len(flat)
    points = np.concatenate(
        [np.column_stack([flat, np.full(count, height)]) for height in (0.0, 0.1)]
    )
    inner, walls, far, sides = {}, [], [], []
    open_faces: dict[tuple[int, ...], tuple[int, list[int]]] = {}
    for i in range(around):
        for j in range(out):
            cell = i * out + j
            ring = [number[i, j], number[i + 1, j], number[i + 1, j + 1], number[i, j + 1]]
            for a, b in zip(ring, [*ring[1:], ring[0]], strict=True):
                face = [a, b, b + count, a + count]
                key = (min(a, b), max(a, b))
                if key in open_faces:
                    owner, its_face = open_faces.pop(key)
                    inner[owner, cell] = its_face
                else:
                    open_faces[key] = (cell, face)
            sides.append((cell, ring[::-1]))
            sides.append((cell, [n + count for n in ring]))
    on_body = set(number[wake : around - wake + 1, 0].tolist())
    for key, (cell, face) in sorted(open_faces.items(), key=lambda item: item[1][0]):
        (walls if set(key) <= on_body and cell % out == 0 else far).append((cell, face))
    ordered = sorted(inner.items())
    faces = [face for _, face in ordered] + [face for part in (walls, far, sides) for _, face in part]  # fmt: skip
    owners = [pair[0] for pair, _ in ordered] + [cell for part in (walls, far, sides) for cell, _ in part]  # fmt: skip
    _write(folder / "points", "vectorField", _listed("({} {} {})".format(*point) for point in points))  # fmt: skip
    _write(folder / "faces", "faceList", _listed("4({} {} {} {})".format(*face) for face in faces))
    note = f'note "nPoints:{2 * count} nCells:{around * out} nFaces:{len(faces)} nInternalFaces:{len(ordered)}";'  # fmt: skip
    _write(folder / "owner", "labelList", _listed(map(str, owners)), note)
    _write(folder / "neighbour", "labelList", _listed(str(pair[1]) for pair, _ in ordered), note)
    start, entries = len(ordered), []
    for name, kind, part in (("airfoil", "wall", walls), ("far", "patch", far), ("sides", "empty", sides)):  # fmt: skip
        entries.append(f"{name} {{ type {kind}; nFaces {len(part)}; startFace {start}; }}")
        start += len(part)
    _write(folder / "boundary", "polyBoundaryMesh", _listed(entries))


def _write_field(
    path: Path, kind: str, item: str, dimensions: str, inside: Iterable[str], far: str, wall: str
) -> None:
    text = (
        f"dimensions {dimensions}; internalField nonuniform List<{item}> {_listed(inside)}; "
        f"boundaryField {{ airfoil {{ {wall} }} far {{ {far} }} sides {{ type empty; }} }}"
    )
    _write(path, kind, text)


def _read_field(path: Path, count: int) -> np.ndarray:
    text = path.read_text(encoding="utf-8")
    body = text.split("internalField")[1].split("boundaryField")[0]
    listed = body[body.index("(") : body.rindex(")")]
    numbers = np.array(re.findall(r"[-+0-9.eE]+", listed), dtype=np.float64)
    return numbers.reshape(count, -1)


def _listed(items: Iterable[str]) -> str:
    items = list(items)
    return f"{len(items)}\n(\n" + "\n".join(items) + "\n)\n"


def _write(path: Path, kind: str, text: str, note: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    place = path.parent.name if path.parent.name in ("0", "system") else "constant"
    head = f'FoamFile {{ version 2.0; format ascii; class {kind}; {note} location "{place}"; object {path.name}; }}\n'  # fmt: skip
    path.write_text(head + text + "\n", encoding="utf-8")
