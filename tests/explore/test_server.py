"""The command around the page: what it says when something is missing."""

import re
import sys
import threading
import urllib.request
from pathlib import Path

import pytest
import uvicorn

from gpo.cli import main
from gpo_explore.command import distinct_names
from gpo_explore.server import prediction_time, serve
from tests.core.test_cli import failure
from tests.explore.conftest import make_run
from tests.explore.sessions import make_session
from tests.processes import LIMIT


@pytest.mark.parametrize("name", ["starlette", "uvicorn"])
def test_without_the_extra_it_says_what_to_type(name, monkeypatch, capsys, tmp_path):
    for module in [known for known in sys.modules if known.startswith(("gpo_explore", f"{name}."))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    code, printed = failure(capsys, "explore", str(tmp_path))
    assert code == 1
    assert f"gpo explore needs the package {name}, which is not installed" in printed
    assert "pip install 'gpo[explore]'" in printed


def test_a_folder_that_is_no_run_is_said(tmp_path, capsys):
    code, printed = failure(capsys, "explore", str(tmp_path))
    assert code == 1
    assert f"{tmp_path} is not a run folder" in printed


def test_the_help_names_every_flag(capsys):
    with pytest.raises(SystemExit):
        main(["explore", "--help"])
    printed = capsys.readouterr().out
    assert all(flag in printed for flag in ("--port", "--host", "--no-browser"))


def test_every_flag_the_page_of_documentation_names_exists(capsys):
    page = Path(__file__).parents[2] / "docs" / "explore.md"
    flags = set(re.findall(r"--[a-z][a-z-]+", page.read_text()))
    with pytest.raises(SystemExit):
        main(["explore", "--help"])
    printed = capsys.readouterr().out
    of_training = {"--model", "--preset", "--budget-cpu", "--noise", "--coarsen"}
    assert all(flag in printed for flag in flags - of_training)


def test_two_runs_are_named_by_what_tells_their_folders_apart(tmp_path):
    folders = [tmp_path / "a" / "run", tmp_path / "b" / "run"]
    assert distinct_names(folders) == ["a/run", "b/run"]
    assert distinct_names([tmp_path / "one", tmp_path / "two"]) == ["one", "two"]
    assert distinct_names(folders[:1] * 2) == [str(folders[0])] * 2


def test_a_second_run_that_is_none_is_said(tmp_path, capsys):
    folder = make_run(tmp_path)
    code, printed = failure(capsys, "explore", str(folder), "--compare", str(tmp_path))
    assert code == 1
    assert f"{tmp_path} is not a run folder" in printed


def test_a_baseline_is_timed_without_switching_anything_off():
    said = prediction_time(make_session("grid", model="fno"))
    assert said.startswith("waves: 80 sites; an ablated prediction takes")


def test_bound_to_all_addresses_the_printed_one_has_a_token_that_opens_it(monkeypatch):
    said, pages = [], []
    run = uvicorn.Server.run

    def run_until_visited(server, sockets):
        address = re.search(r"http://\S+", said[1])[0].replace("0.0.0.0", "127.0.0.1")

        def visit():
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            pages.append(opener.open(address, timeout=LIMIT).read())
            server.should_exit = True

        threading.Thread(target=visit).start()
        run(server, sockets=sockets)
        raise KeyboardInterrupt

    monkeypatch.setattr(uvicorn.Server, "run", run_until_visited)
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    serve(make_session("grid"), "0.0.0.0", 0, opens_browser=True, log=said.append)
    assert "?token=" in said[1]
    assert opened[0] in said[1]
    assert said[-1] == "stopped"
    assert b"<title>gpo explore</title>" in pages[0]
