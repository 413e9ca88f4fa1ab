"""Files that are read in a child process: the same data, and an end to crashes, hangs and bombs."""

import contextlib
import os
import pickle
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from gpo.cli import main
from gpo.data import untrusted
from gpo.data.dataset import DataError
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data, open_static
from gpo.data.untrusted import read_in_child
from gpo.limits import MAX_BYTES, MAX_SECONDS
from tests.contracts.fuzz import content_of
from tests.contracts.samples import SAMPLES
from tests.core.data.files import pair
from tests.core.test_cli import failure

FILE = Path("a.nc")
IN_CHILD = ReadOptions(untrusted=True)


def spin(path):
    """Never ends and takes CPU time."""
    while True:
        pass


def read_names(path):
    """Reads text, which HDF5 keeps in a heap."""
    with h5py.File(path) as file:
        return [str(name) for name in file["names"][:]]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "a.csv"
    rows = [f"{t},{x},{np.sin(x + t):.6f}" for t in range(6) for x in range(8)]
    path.write_text("time,x,u\n" + "\n".join(rows) + "\n")
    return path


@pytest.mark.thorough
def test_a_child_reads_what_this_process_reads(table):
    data = open_data(table, IN_CHILD)
    np.testing.assert_array_equal(data.frames(0), open_data(table).frames(0))
    # A copy in another process, such as a data worker, starts a child of its own.
    other = pickle.loads(pickle.dumps(data))
    np.testing.assert_array_equal(other.frames(0, slice(2, 4)), data.frames(0, slice(2, 4)))


@pytest.mark.thorough
@pytest.mark.parametrize("layout", [name for name in SAMPLES if SAMPLES[name][1] is not None])
def test_a_child_reads_every_layout(tmp_path, layout):
    sample = SAMPLES[layout][1](tmp_path)
    path, select = sample if isinstance(sample, tuple) else (sample, {})
    whole = content_of(path, ReadOptions(select=select))
    assert content_of(path, ReadOptions(select=select, untrusted=True)) == whole


@pytest.mark.thorough
def test_errors_of_a_reader_are_those_of_this_process(tmp_path, table):
    for path, message in (
        (tmp_path / "nothing.nc", "`file` does not exist"),
        (table, "`w` is not in the file, which has u"),
    ):
        for options in (
            ReadOptions(variables=("w",)),
            ReadOptions(variables=("w",), untrusted=True),
        ):
            with pytest.raises(DataError, match=message):
                open_data(path, options)
    with pytest.raises(DataError, match="`reader` must be one of"):
        open_data(table, IN_CHILD, "another")
    assert open_static(table, "u", IN_CHILD) is None


@pytest.mark.thorough
def test_a_crash_of_a_library_is_an_error_of_the_file():
    with pytest.raises(
        DataError, match=r"a\.nc: `file` ended the process that read it \(SIGABRT\)"
    ):
        read_in_child(FILE, os.abort)


@pytest.mark.thorough
def test_memory_beyond_the_limit_names_it_and_how_to_allow_more(monkeypatch):
    monkeypatch.setenv(MAX_BYTES, str(2**28))
    message = "takes more than 256 MiB of memory to read.*GPO_MAX_BYTES=536870912"
    with pytest.raises(DataError, match=message):
        read_in_child(FILE, bytearray, 2**33)


@pytest.mark.thorough
def test_cpu_time_beyond_the_limit_names_it_and_how_to_allow_more(monkeypatch):
    monkeypatch.setenv(MAX_SECONDS, "1")
    monkeypatch.setattr(untrusted, "PATIENCE", 10_000)
    with pytest.raises(DataError, match=r"more than 1 s of CPU time to read.*GPO_MAX_SECONDS=2"):
        read_in_child(FILE, spin, FILE)


@pytest.mark.thorough
def test_a_child_that_gives_no_answer_is_ended(monkeypatch):
    monkeypatch.setattr(untrusted, "PATIENCE", 0.01)
    with pytest.raises(DataError, match=r"gave no answer for 0\.6 s.*GPO_MAX_SECONDS=120"):
        read_in_child(FILE, time.sleep, 10_000)


@pytest.mark.thorough
def test_a_heap_on_which_hdf5_turns_for_ever_ends_the_child(tmp_path, monkeypatch):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("names", data=["one", "two"], dtype=h5py.string_dtype())
    assert len(read_in_child(path, read_names, path)) == 2
    content = bytearray(path.read_bytes())
    begin = content.index(b"GCOL\x01\0\0\0")
    content[begin + 16 : begin + 18], content[begin + 24 : begin + 32] = bytes(2), bytes(8)
    path.write_bytes(content)
    monkeypatch.setenv(MAX_SECONDS, "1")
    monkeypatch.setattr(untrusted, "PATIENCE", 10_000)
    with pytest.raises(DataError, match=r"of CPU time to read|ended the process"):
        read_in_child(path, read_names, path)


@pytest.mark.thorough
def test_a_child_writes_no_file(tmp_path):
    with pytest.raises(DataError):
        read_in_child(FILE, Path.write_text, tmp_path / "written", "text")
    with contextlib.suppress(FileNotFoundError):
        assert (tmp_path / "written").read_text() == ""


def test_without_limits_of_the_system_it_is_refused_with_the_reason(monkeypatch, table):
    monkeypatch.setitem(sys.modules, "resource", None)
    with pytest.raises(
        DataError, match="--untrusted, which needs the module resource, which only Unix"
    ):
        open_data(table, IN_CHILD)


def test_a_number_of_seconds_is_checked(monkeypatch, table):
    monkeypatch.setenv(MAX_SECONDS, "1.5")
    with pytest.raises(
        ValueError, match=r"GPO_MAX_SECONDS must be a number of seconds, got '1\.5'"
    ):
        open_data(table, IN_CHILD)


@pytest.mark.thorough
def test_data_check_reads_all_and_says_so(table, capsys):
    main(["data", "check", str(table)])
    printed = capsys.readouterr().out
    assert "ranges over 6 of 6 frames" in printed
    assert "every value was read: nothing crashed, and no limit was exceeded" in printed


@pytest.mark.thorough
def test_data_check_names_what_is_wrong(table, capsys):
    table.write_text(table.read_text()[:-3])
    code, message = failure(capsys, "data", "check", str(table))
    assert code == 1
    assert "must end with a complete line: it may be cut short" in message


@pytest.mark.thorough
def test_a_run_and_its_forecasts_read_in_children(table, tmp_path):
    from gpo.training.run_folder import Run

    rows = [f"{t},{x},{np.sin(x + t):.6f}" for t in range(20) for x in range(8)]
    table.write_text("time,x,u\n" + "\n".join(rows) + "\n")
    sizes = ["--hidden-dim", "8", "--num-layers", "1", "--num-gaussians", "2", "--epochs", "1"]
    run = tmp_path / "run"
    main(["train", "--data", str(table), *sizes, "--quiet", "--untrusted", "--out", str(run)])
    assert Run(run).config().data.untrusted
    # Whether files are trusted is no part of what was trained.
    main(["train", "--data", str(table), *sizes, "--quiet", "--out", str(run)])
    made = {}
    for name, flags in (("a.nc", ["--untrusted"]), ("b.nc", [])):
        main(["predict", str(run), "--input", str(table), "--output", str(tmp_path / name), *flags])
        made[name] = open_data(tmp_path / name).frames(0)
    np.testing.assert_array_equal(made["a.nc"], made["b.nc"])


@pytest.mark.thorough
def test_static_maps_come_from_a_child(tmp_path):
    fields = np.random.default_rng(0).normal(size=(5, 9, 8))
    np.savez(tmp_path / "a.npz", a=fields, u=fields**2)
    data = open_data(
        tmp_path / "a.npz", ReadOptions(inputs=("a",), variables=("u",), untrusted=True)
    )
    assert not data.has_time
    np.testing.assert_array_equal(pair(data, 3)[1].ravel(), (fields[3] ** 2).ravel())
