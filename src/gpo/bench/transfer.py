"""Errors of models away from the sites they learned on, as multiples of the error there."""

from collections.abc import Sequence
from pathlib import Path

from gpo.bench.experiment import Cell
from gpo.bench.protocol import Protocol
from gpo.bench.table import Entry, Table


def transfer_table(cells: Sequence[Cell], root: Path, column: str, protocol: Protocol) -> Table:
    """Returns relative L2 on coarser and finer grids and on a part of the sites, or the reason."""
    known = {cell.row: cell.results(root).resolution for cell in cells if cell.outcome(root)}
    places = list(dict.fromkeys(place for rows in known.values() for place in rows))
    table = Table(
        f"Sites a model has not learned on: {column}, {protocol.name} protocol", "model", places
    )
    for name, rows in known.items():
        here = rows["1x"].get("model")
        entries = []
        for place in places:
            error = rows.get(place, {}).get("model")
            if isinstance(error, float) and isinstance(here, float):
                note = "" if place == "1x" else f"{error / here:.2f} of 1x"
                entries.append(Entry(error, note=note))
            else:
                entries.append(Entry(note=str(rows.get(place, {}).get("reason", "not scored"))))
        table.add(name, entries)
    table.notes.append(
        "1x are the sites of training. 2x has the truth at double resolution along every axis, "
        f"unless it says interpolated. In brackets multiples of the error at 1x. {protocol}."
    )
    return table
