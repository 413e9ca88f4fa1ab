"""Help answers at once, fits two screens and shows what a run would really take."""

import os
import re
import subprocess
import sys

import pytest

from gpo.cli import main
from gpo.cli.registry import COMMANDS

HEAVY = ("torch", "lightning", "xarray", "scipy", "matplotlib")
SCREENS = 100
"""Lines of 100 columns: two screens."""


def help_of(*words):
    """Returns what `--help` prints, and which heavy packages it imported."""
    script = f"""
import sys
from gpo.cli import main
try:
    main({[*words, "--help"]!r})
finally:
    print(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    environment = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr.split()


@pytest.mark.thorough
@pytest.mark.parametrize("words", [(), ("data",), ("data", "make"), ("run",), ("train",),
                                   ("run", "--model", "gpo-paper"), ("evaluate",)], ids=" ".join)  # fmt: skip
def test_help_imports_nothing_heavy(words):
    printed, heavy = help_of(*words)
    assert printed.startswith("usage: gpo")
    assert heavy == []


@pytest.mark.parametrize("model", ["gpo", "gpo-paper", "fno"])
def test_help_of_a_run_fits_two_screens_and_never_says_none(model):
    printed, _ = help_of("run", "--model", model)
    lines = printed.splitlines()
    assert len(lines) <= SCREENS
    assert max(len(line) for line in lines) <= 100
    assert "None" not in printed
    assert "(default: found by a range test)" in printed
    assert "--optimizer NAME" in printed


@pytest.mark.thorough
def test_help_of_a_run_has_the_daily_flags_and_those_of_its_model_alone():
    ours, published, theirs = (help_of("run", "--model", name)[0] for name in ("gpo", "gpo-paper", "fno"))  # fmt: skip
    for flag in ("--data PATH", "--var VAR", "--lead INT", "--history INT", "--model NAME", "--budget-cpu SECONDS", "--out FOLDER"):  # fmt: skip
        assert all(flag in text for text in (ours, published, theirs))
    assert "--num-waves" in ours
    assert "--num-heads" not in ours
    assert "--num-heads" in published
    assert "--num-gaussians" not in theirs


@pytest.mark.thorough
def test_help_of_the_paper_preset_has_the_papers_sizes():
    printed, _ = help_of("run", "ns2d", "--preset", "paper")
    plain = " ".join(re.sub(r"[│\s]+", " ", printed).split())
    assert "all heads together. (default: 128)" in plain
    assert "absolute, or displacement from the point. (default: absolute)" in plain


def test_importing_the_package_imports_nothing_heavy():
    script = f"import sys, gpo; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout.split() == []


def printed_help(command, monkeypatch, capsys):
    """Returns what `--help` of a command prints, in 100 columns."""
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    return capsys.readouterr().out


def texts_of(printed):
    """Returns the help text of every flag and positional argument, by its name."""
    texts, name = {}, ""
    for line in printed.splitlines():
        if re.match(r"│ (--\w|[A-Z\[]{2,})", line):
            name, *text = re.split(r" {2,}", line.strip("│ "), maxsplit=1)
            texts[name] = " ".join(text)
        elif line.startswith("│   ") and name:
            texts[name] += " " + line.strip("│ ")
        else:
            name = ""
    return {
        name: re.sub(r" \((default:.*|required)\)$", "", text.strip())
        for name, text in texts.items()
    }


ALL_COMMANDS = [
    *COMMANDS, "data make", "data info", "data plot", "bench table1", "bench ablation",
    "bench efficiency", "bench rollout", "bench scaling", "bench export", "run --model gpo-paper",
]  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("command", ALL_COMMANDS)
def test_help_of_every_flag_has_the_same_form(command, monkeypatch, capsys):
    """A noun phrase for a value, an imperative for a switch, no article first, a period last."""
    texts = texts_of(printed_help(command, monkeypatch, capsys))
    for name, text in texts.items():
        assert re.match(r"(?!A |An |The |Whether |If |Of |On )[A-Z].*\.$", text), (name, text)


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["run", "interpret", "explore"])
def test_help_of_a_switch_is_what_it_does(command, monkeypatch, capsys):
    texts = texts_of(printed_help(command, monkeypatch, capsys))
    switches = {name: text for name, text in texts.items() if re.fullmatch(r"[-\w, ]+", name)}
    verbs = {text.split()[0] for name, text in switches.items() if name == name.lower()}
    assert verbs <= {"Hide", "Log", "Take", "Tune", "Print", "Part", "Read"}, switches


@pytest.mark.thorough
@pytest.mark.parametrize("command", ALL_COMMANDS)
def test_help_shows_no_types_of_python_and_no_empty_default(command, monkeypatch, capsys):
    printed = printed_help(command, monkeypatch, capsys)
    plain = " ".join(re.sub(r"[│\s]+", " ", printed).split())
    assert "None" not in plain
    assert "(default: )" not in plain
    # What tyro prints first may be longer: it lists all commands.
    assert max(map(len, printed.splitlines()[1:])) <= 100
