import pytest

from gpo.files import whole_file, write_text


def test_a_file_appears_only_when_all_of_it_is_written(tmp_path):
    path = tmp_path / "numbers.npz"
    with whole_file(path) as partial:
        partial.write_text("half")
        assert not path.exists()
        assert partial.suffix == ".npz"
    assert path.read_text() == "half"
    assert list(tmp_path.iterdir()) == [path]


def fail_half_way(path):
    with whole_file(path) as partial:
        partial.write_text("new, but")
        raise OSError("disk full")


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "config.yaml"
    write_text(path, "old")
    with pytest.raises(OSError, match="disk full"):
        fail_half_way(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
