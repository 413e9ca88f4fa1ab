"""Run as a program: damages a file in many ways and reads each; only `DataError` may come out.

It has a process of its own, so that a crash of a file library is seen and not suffered, and
so that a damaged size cannot eat the machine's memory.
"""

import random
import resource
import shutil
import sys
import warnings
from pathlib import Path

from gpo.data.dataset import DataError
from gpo.data.readers.registry import open_data
from gpo.data.summary import summarise

MEMORY = 6 * 2**30


def damage(content: bytes, generator: random.Random) -> bytes:
    """Cuts a file short, or changes some of its bytes, most often near its beginning."""
    if generator.random() < 0.3:
        return content[: generator.randrange(len(content))]
    changed = bytearray(content)
    reach = generator.choice([64, 512, 4096, len(content)])
    for _ in range(generator.choice([1, 1, 4, 32])):
        changed[generator.randrange(min(reach, len(content)))] = generator.randrange(256)
    return bytes(changed)


def main(path: Path, work: Path, count: int) -> None:
    """Damages one file at a time; a folder is damaged in one of its files."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    generator = random.Random(0)
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    refused = 0
    for _ in range(count):
        copy = work / path.name
        if path.is_dir():
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(path, copy)
        victim = generator.choice(files)
        target = copy / victim.relative_to(path) if path.is_dir() else copy
        target.write_bytes(damage(victim.read_bytes(), generator))
        try:
            summarise(open_data(copy))
        except DataError:
            refused += 1
    print(f"{refused} of {count} refused")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
