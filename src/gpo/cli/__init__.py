"""Command line: one file and one typed configuration per command.

Only the module of the requested command is imported, so that `--help` is fast.
"""

import os
import sys
from dataclasses import make_dataclass
from importlib.metadata import version
from typing import Annotated, Any, NoReturn

import tyro
from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes, subcommand

from gpo.cli.console import PlainConsole
from gpo.cli.registry import COMMANDS
from gpo.optional import MissingPackageError, extra_of
from gpo.registry import missing_plugins, resolve


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line.

    Exit codes: 0 success, 1 invalid input or data (with a message), 2 invalid arguments,
    130 interrupted.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        if arguments == ["--version"]:
            print(f"gpo {version('gpo')}")
            return
        parse(arguments).run()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output (such as `head`) has closed the pipe: discard the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError, MissingPackageError) as error:
        _fail(str(error))
    except ModuleNotFoundError as error:
        extra = extra_of(str(error.name).partition(".")[0])
        if extra is None:
            raise
        _fail(
            f"gpo {arguments[0]} needs the package {error.name}, which is not installed. Install it: pip install 'gpo[{extra}]'."
        )
    except KeyboardInterrupt:
        PlainConsole(stderr=True).print("interrupted: run the same command again to resume.")
        sys.exit(130)


def _fail(message: str) -> NoReturn:
    """Prints an error, and which plug-ins are missing, and exits."""
    notes = [note for note in missing_plugins() if note not in message]
    for text in (f"error: {message}", *notes):
        PlainConsole(stderr=True).print(text)
    sys.exit(1)


def parse(arguments: list[str]) -> Any:
    """Returns the parsed command; defaults depend on the model, the preset and --config."""
    name = arguments[0] if arguments else ""
    if not name.startswith("-") and name not in COMMANDS and missing_plugins():
        raise ValueError(f"The command must be one of {', '.join(COMMANDS)}, got {name!r}.")
    if name not in ("run", "train"):
        return _parse_onto(None, arguments)
    from gpo.cli.run import defaults, settings_of, with_data_flag

    arguments = with_data_flag(arguments)
    command = _parse_onto(defaults(name, arguments), arguments)
    data = settings_of(command).data
    if data.preset == "paper" and data.benchmark is not None:
        command = _parse_onto(defaults(name, arguments, data.benchmark), arguments)
    return command


def _parse_onto(defaults: Any, arguments: list[str]) -> Any:
    """Parses arguments onto the defaults of a command, if any.

    Other commands appear in the help by name only.
    """
    members = []
    for name, entry in COMMANDS.items():
        options: dict[str, Any] = {}
        if arguments[:1] == [name]:
            kind = resolve(entry.target)
            options = {} if defaults is None else {"default": defaults}
        else:
            kind = make_dataclass(entry.target.split(":")[1], [])
        members.append(Annotated[kind, subcommand(name, description=entry.help, **options)])
    union = members[0]
    for member in members[1:]:
        union = union | member
    return tyro.cli(
        OmitSubcommandPrefixes[OmitArgPrefixes[union]],  # type: ignore[valid-type]
        prog="gpo",
        description="Gaussian Particle Operator: a neural operator for PDE fields.",
        args=arguments,
    )
