"""How a pass over points is carried out: checks, geometry, chunks, recomputation, shards; no equation."""
