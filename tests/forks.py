"""A process that has imported what commands need, and forks for every one: none imports it again.

Asked in lines of JSON on its input, it answers in such lines; `tests/processes.py` asks. What it
forks runs a module as `python -m` does, or lines as `python -c` does, with its own arguments, environment and output, and comes
to its end as any process. It ends itself with its input, that is with the process that started it.
"""

import importlib
import json
import os
import runpy
import signal
import sys
from typing import Any

NEEDED = (
    "h5py", "netCDF4", "xarray", "torch.distributed", "lightning", "gpo.cli.predict", "gpo.cli.work",
    "gpo.data.readers.registry", "gpo.evaluation.score", "gpo.report.run_report", "gpo.training.fit",
)  # fmt: skip


def main() -> None:
    """Forks and tells how what was forked ended, until nobody can ask any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in NEEDED:
        importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        asked = json.loads(line)
        if "pid" in asked:
            pid, status = os.waitpid(asked["pid"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if answer == 0:
                return run(asked)
        print(json.dumps(answer), file=answers, flush=True)
    return None


def run(asked: dict[str, Any]) -> None:
    """Becomes the command: its module is the main one."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    output = os.open(asked["output"], os.O_WRONLY | os.O_APPEND)
    for stream, number in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (output, 2)):
        os.dup2(stream, number)
    os.environ.clear()
    os.environ.update(asked["env"])
    module, arguments = asked["module"], asked["arguments"]
    if module == "-c":
        sys.argv = ["-c", *arguments[1:]]
        exec(compile(arguments[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv[1:] = arguments
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
