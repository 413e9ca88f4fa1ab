"""One layer on its way through all chunks of sites: first all are measured, then all are updated."""

import torch
from torch import Tensor

from gpo.model.abstract_layers import AbstractLayers, Chunk, Visit


class Passage:
    """A layer that leaves to autograd what the backward pass needs."""

    def __init__(self, layers: AbstractLayers, number: int, chunks: list[Chunk]) -> None:
        self.layers, self.number, self.chunks = layers, number, chunks
        self.seen: list[Visit] = []
        """Chunks with their windows, from measuring until updating."""

    def measure(self, visits: list[Visit]) -> Tensor:
        """Returns the moments of all chunks."""
        self.seen = [self.layers.look(self.number, visit) for visit in visits]
        pairs = zip(self.seen, self.chunks, strict=True)
        return torch.stack([self.layers.measure(self.number, *pair) for pair in pairs]).sum(0)

    def update(self, visits: list[Visit], scattered: Tensor) -> list[Visit]:
        """Returns all chunks after modes were scattered to them."""
        pairs = zip(self.seen, self.chunks, strict=True)
        layers, number = self.layers, self.number
        return [layers.update(number, visit, scattered, chunk) for visit, chunk in pairs]
