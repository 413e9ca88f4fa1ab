"""The command line: one file per command, one typed configuration each.

Only the file of the command that is asked for is imported, so that help answers at once.
"""

import os
import sys
from dataclasses import make_dataclass
from typing import Annotated, Any

import tyro
from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes, subcommand

from gpo.cli.console import PlainConsole
from gpo.cli.registry import COMMANDS
from gpo.optional import MissingPackageError
from gpo.registry import resolve


def main(arguments: list[str] | None = None) -> None:
    """Runs the command that the arguments name.

    Exit codes: 0 done, 1 the input or the data is at fault (the message says how), 2 the
    arguments make no sense, 130 interrupted.
    """
    try:
        parse(sys.argv[1:] if arguments is None else arguments).run()
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has seen enough; what is left goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError, MissingPackageError) as error:
        PlainConsole(stderr=True).print(f"error: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        PlainConsole(stderr=True).print("interrupted: the same command goes on from here.")
        sys.exit(130)


def parse(arguments: list[str]) -> Any:
    """Returns the command; flags that are not given follow the model, the preset and --config."""
    chosen = arguments[0] if arguments else ""
    if chosen not in ("run", "train"):
        return _parse_onto(None, arguments)
    from gpo.cli.run import defaults, settings_of

    command = _parse_onto(defaults(chosen, arguments), arguments)
    data = settings_of(command).data
    if data.preset == "paper" and data.benchmark is not None:
        command = _parse_onto(defaults(chosen, arguments, data.benchmark), arguments)
    return command


def _parse_onto(defaults: Any, arguments: list[str]) -> Any:
    """Returns the command that arguments make of its defaults, if it has any.

    Commands that are not asked for stand in the help with their name alone.
    """
    members = []
    for name, entry in COMMANDS.items():
        known: dict[str, Any] = {}
        if arguments[:1] == [name]:
            kind = resolve(entry.target)
            known = {} if defaults is None else {"default": defaults}
        else:
            kind = make_dataclass(entry.target.split(":")[1], [])
        members.append(Annotated[kind, subcommand(name, description=entry.help, **known)])
    union = members[0]
    for member in members[1:]:
        union = union | member
    return tyro.cli(
        OmitSubcommandPrefixes[OmitArgPrefixes[union]],  # type: ignore[valid-type]
        prog="gpo",
        description="Gaussian Particle Operator: PDE fields as particles that can be drawn.",
        args=arguments,
    )
