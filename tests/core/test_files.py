import json
import sys

import pytest

from gpo.atomic_files import atomic_file, new_file, write_text
from gpo.optional import MissingPackageError, require


def test_a_file_appears_only_when_all_of_it_is_written(tmp_path):
    path = tmp_path / "numbers.npz"
    with atomic_file(path) as partial:
        partial.write_text("half")
        assert not path.exists()
        assert partial.suffix == ".npz"
    assert path.read_text() == "half"
    assert list(tmp_path.iterdir()) == [path]


def fail_half_way(path):
    with atomic_file(path) as partial:
        partial.write_text("new, but")
        raise OSError("disk full")


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "config.yaml"
    write_text(path, "old")
    with pytest.raises(OSError, match="disk full"):
        fail_half_way(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_whole_or_not_there_too(tmp_path):
    def fill(path, is_broken):
        with atomic_file(path) as partial:
            partial.mkdir()
            (partial / "part").write_text("content")
            if is_broken:
                raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fill(tmp_path / "a.zarr", is_broken=True)
    assert list(tmp_path.iterdir()) == []
    fill(tmp_path / "a.zarr", is_broken=False)
    assert (tmp_path / "a.zarr/part").read_text() == "content"


def test_a_new_file_has_a_known_ending_a_free_name_and_a_folder(tmp_path):
    path = new_file(tmp_path / "deep/down/a.nc", (".nc", ".zarr"))
    assert path.parent.is_dir()
    path.write_text("")
    with pytest.raises(ValueError, match=r"a.nc exists. Choose another name, or delete it"):
        new_file(path, (".nc",))
    with pytest.raises(ValueError, match=r"`path` must end in .nc or .zarr, got 'a.txt'"):
        new_file(str(tmp_path / "a.txt"), (".nc", ".zarr"))


def test_a_required_package_is_imported_where_it_is_installed():
    assert require("json", "data") is json


def test_a_missing_package_names_the_extra_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cfgrib", None)
    needs = "Reading GRIB needs the package cfgrib, which is not installed"
    with pytest.raises(MissingPackageError, match=rf"{needs}. Install it: .*'gpo\[data\]'"):
        require("cfgrib", "data", "Reading GRIB")


def test_a_module_of_ours_names_the_package_that_it_misses(tmp_path, monkeypatch):
    (tmp_path / "needs_much.py").write_text("import no_such_package.part")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingPackageError, match="This needs the package no_such_package"):
        require("needs_much", "data")


def test_a_missing_module_of_our_own_is_no_missing_package():
    with pytest.raises(ModuleNotFoundError, match=r"gpo\.no_such_module"):
        require("gpo.no_such_module", "data")
