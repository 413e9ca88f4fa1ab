"""Particles and tracers for other programs: VTK's XML points and lines (`.vtp`), point clouds (`.ply`).

Both have three coordinates; those that a domain lacks are zero. In ParaView, the filter Tensor
Glyph with the array `footprint` draws every particle as the ellipse or ellipsoid of one standard
deviation, with a scale factor of 2 since its sphere has diameter one.
"""

import base64
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from gpo.atomic_files import new_file, whole_file
from gpo.inspect.cloud import ParticleCloud

VTK_TYPES = {"float32": "Float32", "float64": "Float64", "int32": "Int32"}
PLY_TYPES = {"float32": "float", "float64": "double", "int32": "int"}


def export_cloud(cloud: ParticleCloud, path: str | Path, is_text: bool) -> None:
    """Writes a particle cloud to a new file, in the format of its ending."""
    columns = {
        "weight": cloud.weights,
        "scale": in_space(cloud.scales),
        **{name: tensor.to(torch.int32) for name, tensor in _owners(cloud).items()},
    }
    export_points(path, cloud.centers, columns, cloud.footprints().tensors, is_text)


def export_points(
    path: str | Path,
    centers: Float[Tensor, "particles dim"],
    columns: Mapping[str, Tensor],
    footprints: Float[Tensor, "particles dim dim"],
    is_text: bool,
) -> None:
    """Writes particles to a new file, in the format of its ending.

    Args:
        path: The file; it is whole or not there.
        centers: Where they are.
        columns: By name, what belongs to each: a number, or a vector in space.
        footprints: Symmetric matrices with half axes as eigenvalues; only VTK has them.
        is_text: Whether numbers are written out, not as bytes.
    """
    path = new_file(path, (".vtp", ".ply"))
    if path.suffix == ".vtp":
        content = _vtp(centers, columns, footprints, is_text)
    else:
        content = _ply(centers, columns, is_text)
    with whole_file(path) as partial:
        partial.write_bytes(content)


def export_lines(
    path: str | Path,
    positions: Float[Tensor, "lines points dim"],
    at_points: Mapping[str, Tensor],
    of_lines: Mapping[str, Tensor],
    is_text: bool,
) -> None:
    """Writes a new file of VTK lines; a line ends before its first point that is not finite.

    Args:
        path: The file.
        positions: The points of every line.
        at_points: Numbers by name, one for every point.
        of_lines: Whole numbers by name, one for every line.
        is_text: Whether numbers are written out, not as bytes.
    """
    path = new_file(path, (".vtp",))
    is_there = positions.isfinite().all(-1).cumprod(-1).bool()
    lengths = is_there.sum(-1)
    is_line = lengths > 0
    count, lines = int(lengths.sum()), int(is_line.sum())
    root, piece = _polydata(count, lines=lines)
    held = ElementTree.SubElement(piece, "PointData")
    for name, numbers in at_points.items():
        _add(held, name, _array(numbers[is_there]), is_text)
    held = ElementTree.SubElement(piece, "CellData")
    for name, numbers in of_lines.items():
        _add(held, name, _array(numbers[is_line].to(torch.int32)), is_text)
    places = ElementTree.SubElement(piece, "Points")
    _add(places, "Points", _array(in_space(positions[is_there])), is_text)
    cells = ElementTree.SubElement(piece, "Lines")
    _add(cells, "connectivity", np.arange(count, dtype=np.int32), is_text)
    _add(cells, "offsets", _array(lengths[is_line].cumsum(0).to(torch.int32)), is_text)
    with whole_file(path) as partial:
        partial.write_bytes(_document(root))


def _polydata(
    points: int, vertices: int = 0, lines: int = 0
) -> tuple[ElementTree.Element, ElementTree.Element]:
    """Returns a document of VTK PolyData and its only piece."""
    root = ElementTree.Element(
        "VTKFile",
        type="PolyData", version="1.0", byte_order="LittleEndian", header_type="UInt64",
    )  # fmt: skip
    piece = ElementTree.SubElement(
        ElementTree.SubElement(root, "PolyData"), "Piece",
        NumberOfPoints=str(points), NumberOfVerts=str(vertices), NumberOfLines=str(lines),
        NumberOfStrips="0", NumberOfPolys="0",
    )  # fmt: skip
    return root, piece


def _document(root: ElementTree.Element) -> bytes:
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


def in_space(places: Float[Tensor, "particles dim"]) -> Float[Tensor, "particles 3"]:
    """Returns vectors with zeros for the coordinates that a domain lacks."""
    return pad(places, (0, 3 - places.shape[1]))


def _vtp(
    centers: Tensor, columns: Mapping[str, Tensor], footprints: Tensor, is_text: bool
) -> bytes:
    """Returns VTK PolyData: a vertex per particle, and what belongs to it."""
    count, missing = len(centers), 3 - centers.shape[1]
    scalars = next(name for name, values in columns.items() if values.is_floating_point())
    root, piece = _polydata(count, vertices=count)
    held = ElementTree.SubElement(piece, "PointData", Scalars=scalars, Tensors="footprint")
    for name, values in columns.items():
        _add(held, name, _array(values), is_text)
    whole = pad(footprints, (0, missing, 0, missing))
    _add(held, "footprint", _array(whole.flatten(1)), is_text)
    places = ElementTree.SubElement(piece, "Points")
    _add(places, "Points", _array(in_space(centers)), is_text)
    vertices = ElementTree.SubElement(piece, "Verts")
    _add(vertices, "connectivity", np.arange(count, dtype=np.int32), is_text)
    _add(vertices, "offsets", np.arange(1, count + 1, dtype=np.int32), is_text)
    return _document(root)


def _add(parent: ElementTree.Element, name: str, values: np.ndarray, is_text: bool) -> None:
    described = {
        "type": VTK_TYPES[values.dtype.name],
        "Name": name,
        "format": "ascii" if is_text else "binary",
    }
    if values.ndim > 1:
        described["NumberOfComponents"] = str(values.shape[1])
    array = ElementTree.SubElement(parent, "DataArray", described)
    if is_text:
        array.text = " ".join(map(str, values.ravel()))
        return
    content = values.astype(values.dtype.newbyteorder("<")).tobytes()
    # The number of bytes goes first, in the type that `header_type` names.
    array.text = base64.b64encode(len(content).to_bytes(8, "little") + content).decode()


def _ply(centers: Tensor, columns: Mapping[str, Tensor], is_text: bool) -> bytes:
    """Returns a polygon file of vertices only."""
    table = dict(zip("xyz", (_array(part) for part in in_space(centers).unbind(-1)), strict=True))
    # Vectors become three columns, and go before numbers.
    for name, values in sorted(columns.items(), key=lambda column: -column[1].ndim):
        if values.ndim == 1:
            table[name] = _array(values)
            continue
        parts = zip("xyz", values.unbind(-1), strict=True)
        table |= {f"{name}_{axis}": _array(numbers) for axis, numbers in parts}
    count = len(centers)
    header = [
        "ply",
        f"format {'ascii' if is_text else 'binary_little_endian'} 1.0",
        "comment Gaussian particles of gpo",
        f"element vertex {count}",
        *(f"property {PLY_TYPES[values.dtype.name]} {name}" for name, values in table.items()),
        "end_header\n",
    ]
    if is_text:
        rows = zip(*(map(str, values) for values in table.values()), strict=True)
        return ("\n".join(header) + "".join(" ".join(row) + "\n" for row in rows)).encode()
    content = np.empty(count, [(name, v.dtype.newbyteorder("<")) for name, v in table.items()])
    for name, values in table.items():
        content[name] = values
    return "\n".join(header).encode() + content.tobytes()


def _owners(cloud: ParticleCloud) -> dict[str, Tensor]:
    return {"sample": cloud.samples, "site": cloud.sites, "gaussian": cloud.gaussians}


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()
