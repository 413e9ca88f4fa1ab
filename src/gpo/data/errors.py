"""The one error that reading data may end in."""

from pathlib import Path


class DataError(ValueError):
    """Data that cannot be used; the message names the file, the field and what is wrong."""

    def __init__(self, path: str | Path, field: str, problem: str) -> None:
        super().__init__(f"{path}: `{field}` {problem}")
        self.path = Path(path)
        self.field = field
        self.problem = problem
