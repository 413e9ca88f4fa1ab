"""A server that forks: it has imported what commands need, so that no command imports it again.

Requests and responses are lines of JSON on its input and output; `tests/processes.py` sends them. A
forked process runs a module as `python -m` does, or code as `python -c` does, with arguments, an
environment and an output of its own. The server ends at the end of its input, that is with the
process that started it.
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
    """Forks, and returns the exit codes of forked processes, until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in NEEDED:
        importlib.import_module(name)
    responses = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        if "pid" in request:
            pid, status = os.waitpid(request["pid"], os.WNOHANG)
            response = os.waitstatus_to_exitcode(status) if pid else None
        else:
            response = os.fork()
            if response == 0:
                return run(request)
        print(json.dumps(response), file=responses, flush=True)
    return None


def run(request: dict[str, Any]) -> None:
    """Runs the requested module or code as the main module of this process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    output = os.open(request["output"], os.O_WRONLY | os.O_APPEND)
    for stream, number in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (output, 2)):
        os.dup2(stream, number)
    os.environ.clear()
    os.environ.update(request["env"])
    module, arguments = request["module"], request["arguments"]
    if module == "-c":
        sys.argv = ["-c", *arguments[1:]]
        exec(compile(arguments[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv[1:] = arguments
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
