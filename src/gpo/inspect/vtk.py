"""Writers of VTK XML points and lines (`.vtp`) and of PLY point clouds (`.ply`).

Both formats have three coordinates; coordinates that a domain lacks are zero. In ParaView, the
filter Tensor Glyph with the array `footprint` draws every particle as the ellipse or ellipsoid of
one standard deviation; set its scale factor to 2, because its sphere has diameter one.
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

from gpo.atomic_files import atomic_file, new_file

VTK_TYPES = {"float32": "Float32", "float64": "Float64", "int32": "Int32"}
PLY_TYPES = {"float32": "float", "float64": "double", "int32": "int"}


def export_points(
    path: str | Path,
    centers: Float[Tensor, "particles dim"],
    columns: Mapping[str, Tensor],
    footprints: Float[Tensor, "particles dim dim"],
    is_text: bool,
) -> None:
    """Writes particles to a new `.vtp` or `.ply` file.

    Args:
        path: The file; it is written completely or not at all.
        centers: Positions.
        columns: Further arrays by name: a number or a three-dimensional vector per particle.
        footprints: Symmetric matrices with the semi-axes as eigenvalues; written to `.vtp` only.
        is_text: Whether to write text instead of binary numbers.
    """
    path = new_file(path, (".vtp", ".ply"))
    if path.suffix == ".vtp":
        content = _vtp(centers, columns, footprints, is_text)
    else:
        content = _ply(centers, columns, is_text)
    with atomic_file(path) as partial:
        partial.write_bytes(content)


def export_lines(
    path: str | Path,
    positions: Float[Tensor, "lines points dim"],
    at_points: Mapping[str, Tensor],
    of_lines: Mapping[str, Tensor],
    is_text: bool,
) -> None:
    """Writes a new file of VTK lines; a line ends before its first non-finite point.

    Args:
        path: The file; it is written completely or not at all.
        positions: The points of every line.
        at_points: Arrays by name, one number per point.
        of_lines: Arrays by name, one integer per line.
        is_text: Whether to write text instead of binary numbers.
    """
    path = new_file(path, (".vtp",))
    is_valid = positions.isfinite().all(-1).cumprod(-1).bool()
    lengths = is_valid.sum(-1)
    is_line = lengths > 0
    count, lines = int(lengths.sum()), int(is_line.sum())
    root, piece = _polydata(count, lines=lines)
    point_data = ElementTree.SubElement(piece, "PointData")
    for name, values in at_points.items():
        _add(point_data, name, _array(values[is_valid]), is_text)
    cell_data = ElementTree.SubElement(piece, "CellData")
    for name, values in of_lines.items():
        _add(cell_data, name, _array(values[is_line].to(torch.int32)), is_text)
    points = ElementTree.SubElement(piece, "Points")
    _add(points, "Points", _array(pad_to_3d(positions[is_valid])), is_text)
    cells = ElementTree.SubElement(piece, "Lines")
    _add(cells, "connectivity", np.arange(count, dtype=np.int32), is_text)
    _add(cells, "offsets", _array(lengths[is_line].cumsum(0).to(torch.int32)), is_text)
    with atomic_file(path) as partial:
        partial.write_bytes(_document(root))


def _polydata(
    points: int, vertices: int = 0, lines: int = 0
) -> tuple[ElementTree.Element, ElementTree.Element]:
    """Returns the root of a VTK PolyData document and its single piece."""
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


def pad_to_3d(vectors: Float[Tensor, "particles dim"]) -> Float[Tensor, "particles 3"]:
    """Returns vectors in three dimensions, padded with zeros."""
    return pad(vectors, (0, 3 - vectors.shape[1]))


def _vtp(
    centers: Tensor, columns: Mapping[str, Tensor], footprints: Tensor, is_text: bool
) -> bytes:
    """Returns a VTK PolyData document with a vertex and its arrays per particle."""
    count, missing = len(centers), 3 - centers.shape[1]
    scalars = next(name for name, values in columns.items() if values.is_floating_point())
    root, piece = _polydata(count, vertices=count)
    point_data = ElementTree.SubElement(piece, "PointData", Scalars=scalars, Tensors="footprint")
    for name, values in columns.items():
        _add(point_data, name, _array(values), is_text)
    tensors = pad(footprints, (0, missing, 0, missing))
    _add(point_data, "footprint", _array(tensors.flatten(1)), is_text)
    points = ElementTree.SubElement(piece, "Points")
    _add(points, "Points", _array(pad_to_3d(centers)), is_text)
    vertices = ElementTree.SubElement(piece, "Verts")
    _add(vertices, "connectivity", np.arange(count, dtype=np.int32), is_text)
    _add(vertices, "offsets", np.arange(1, count + 1, dtype=np.int32), is_text)
    return _document(root)


def _add(parent: ElementTree.Element, name: str, values: np.ndarray, is_text: bool) -> None:
    attributes = {
        "type": VTK_TYPES[values.dtype.name],
        "Name": name,
        "format": "ascii" if is_text else "binary",
    }
    if values.ndim > 1:
        attributes["NumberOfComponents"] = str(values.shape[1])
    array = ElementTree.SubElement(parent, "DataArray", attributes)
    if is_text:
        array.text = " ".join(map(str, values.ravel()))
        return
    content = values.astype(values.dtype.newbyteorder("<")).tobytes()
    # The number of bytes comes first, in the type that `header_type` declares.
    array.text = base64.b64encode(len(content).to_bytes(8, "little") + content).decode()


def _ply(centers: Tensor, columns: Mapping[str, Tensor], is_text: bool) -> bytes:
    """Returns a PLY file with a vertex per particle."""
    table = dict(zip("xyz", (_array(part) for part in pad_to_3d(centers).unbind(-1)), strict=True))
    # Vectors become three columns each and precede the scalars.
    for name, values in sorted(columns.items(), key=lambda column: -column[1].ndim):
        if values.ndim == 1:
            table[name] = _array(values)
            continue
        parts = zip("xyz", values.unbind(-1), strict=True)
        table |= {f"{name}_{axis}": _array(part) for axis, part in parts}
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


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()
