"""A particle cloud for other programs: VTK's XML points (`.vtp`) and point clouds (`.ply`).

Both have three coordinates; those that a domain lacks are zero. In ParaView, the filter Tensor
Glyph with the array `footprint` draws every particle as the ellipse or ellipsoid of one standard
deviation, with a scale factor of 2 since its sphere has diameter one.
"""

import base64
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from gpo.files import new_file, whole_file
from gpo.inspect.cloud import ParticleCloud

VTK_TYPES = {"float32": "Float32", "float64": "Float64", "int32": "Int32"}
PLY_TYPES = {"float32": "float", "float64": "double", "int32": "int"}


def export_cloud(cloud: ParticleCloud, path: str | Path, is_text: bool) -> None:
    """Writes a new file, in the format of its ending."""
    path = new_file(path, (".vtp", ".ply"))
    content = _vtp(cloud, is_text) if path.suffix == ".vtp" else _ply(cloud, is_text)
    with whole_file(path) as partial:
        partial.write_bytes(content)


def _vtp(cloud: ParticleCloud, is_text: bool) -> bytes:
    """Returns VTK PolyData: a vertex per particle, and what belongs to it."""
    count = len(cloud)
    root = ElementTree.Element(
        "VTKFile",
        type="PolyData", version="1.0", byte_order="LittleEndian", header_type="UInt64",
    )  # fmt: skip
    piece = ElementTree.SubElement(
        ElementTree.SubElement(root, "PolyData"), "Piece",
        NumberOfPoints=str(count), NumberOfVerts=str(count), NumberOfLines="0",
        NumberOfStrips="0", NumberOfPolys="0",
    )  # fmt: skip
    held = ElementTree.SubElement(piece, "PointData", Scalars="weight", Tensors="footprint")
    missing = 3 - cloud.domain.dim
    footprints = pad(cloud.footprints().tensors, (0, missing, 0, missing))
    for name, values in _owners(cloud).items():
        _add(held, name, values, is_text)
    _add(held, "weight", _array(cloud.weights), is_text)
    _add(held, "scale", _array(_in_space(cloud.scales)), is_text)
    _add(held, "footprint", _array(footprints.flatten(1)), is_text)
    places = ElementTree.SubElement(piece, "Points")
    _add(places, "Points", _array(_in_space(cloud.centers)), is_text)
    vertices = ElementTree.SubElement(piece, "Verts")
    _add(vertices, "connectivity", np.arange(count, dtype=np.int32), is_text)
    _add(vertices, "offsets", np.arange(1, count + 1, dtype=np.int32), is_text)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


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


def _ply(cloud: ParticleCloud, is_text: bool) -> bytes:
    """Returns a polygon file of vertices only."""
    columns: dict[str, np.ndarray] = {}
    for prefix, places in (("", cloud.centers), ("scale_", cloud.scales)):
        for axis, numbers in zip("xyz", _in_space(places).unbind(-1), strict=True):
            columns[prefix + axis] = _array(numbers)
    columns |= {"weight": _array(cloud.weights), **_owners(cloud)}
    header = [
        "ply",
        f"format {'ascii' if is_text else 'binary_little_endian'} 1.0",
        "comment Gaussian particles of gpo",
        f"element vertex {len(cloud)}",
        *(f"property {PLY_TYPES[values.dtype.name]} {name}" for name, values in columns.items()),
        "end_header\n",
    ]
    if is_text:
        rows = zip(*(map(str, values) for values in columns.values()), strict=True)
        return ("\n".join(header) + "".join(" ".join(row) + "\n" for row in rows)).encode()
    table = np.empty(len(cloud), [(name, v.dtype.newbyteorder("<")) for name, v in columns.items()])
    for name, values in columns.items():
        table[name] = values
    return "\n".join(header).encode() + table.tobytes()


def _owners(cloud: ParticleCloud) -> dict[str, np.ndarray]:
    numbers = {"sample": cloud.samples, "site": cloud.sites, "gaussian": cloud.gaussians}
    return {name: _array(values.to(torch.int32)) for name, values in numbers.items()}


def _in_space(places: Float[Tensor, "particles dim"]) -> Float[Tensor, "particles 3"]:
    return pad(places, (0, 3 - places.shape[1]))


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()
