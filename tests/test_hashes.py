"""Sums of the pinned wheels: there are some for every pin, and pip refuses anything else."""

import hashlib
import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests import hashes

PROJECT = Path(__file__).parents[1]
FILES = ("requirements.txt", "requirements-validate.txt")


@pytest.mark.parametrize("name", FILES)
def test_every_pin_has_sums(name):
    text = (PROJECT / name).read_text().replace("\\\n", " ")
    pins = [line for line in text.splitlines() if not line.startswith("#")]
    for pin in pins:
        requirement, *sums = pin.split()
        assert re.fullmatch(r"[\w.-]+==[\w.!+]+", requirement)
        assert sums, f"{requirement}: python -m tests.hashes {name} --index ADDRESS"
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in sums)
        assert len(set(sums)) == len(sums)


def test_make_installs_pins_with_their_sums_alone():
    makefile = (PROJECT / "Makefile").read_text()
    checked = re.search(r"^CHECKED := (.*)$", makefile, re.M)[1].split()
    assert {"--require-hashes", "--only-binary", "--no-deps"} <= set(checked)
    for name in FILES:
        assert f"pip install $(CHECKED) --requirement {name}" in makefile
        assert makefile.count(f"--requirement {name}") == 1


@pytest.mark.parametrize(
    ("name", "is_wanted"),
    [
        ("torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl", True),
        ("torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl", True),
        ("torch-2.13.0-cp313-none-macosx_14_0_arm64.whl", True),
        ("torch-2.13.0-py3-none-any.whl", True),
        ("torch-2.13.0-cp39-abi3-win_amd64.whl", True),
        ("torch-2.13.0-cp310-cp310-manylinux_2_28_x86_64.whl", False),
        ("torch-2.13.0-pp311-pypy311_pp73-manylinux_2_28_x86_64.whl", False),
        ("torch-2.13.0-cp311-cp311-musllinux_1_2_x86_64.whl", False),
        ("torch-2.13.1-py3-none-any.whl", False),
        ("torchaudio-2.13.0-py3-none-any.whl", False),
        ("torch-2.13.0.tar.gz", False),
    ],
)
def test_wheels_that_we_may_install_are_listed_and_no_source(name, is_wanted):
    assert hashes.is_wanted(name, "torch", "2.13.0") == is_wanted


def wheel(folder, code="number = 1\n"):
    """Writes the wheel of a package with one line of code; returns its sum."""
    path = folder / "tiny-1.0-py3-none-any.whl"
    about = "tiny-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {
            "tiny.py": code,
            f"{about}/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
            f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{about}/RECORD": "",
        }.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def install(folder):
    """Runs pip as make does, without installing anything."""
    checked = re.search(r"^CHECKED := (.*)$", (PROJECT / "Makefile").read_text(), re.M)[1].split()
    return subprocess.run(
        [sys.executable, "-m", "pip", "install", *checked, "--dry-run", "--no-index",
         "--find-links", str(folder), "--requirement", str(folder / "requirements.txt")],
        capture_output=True, text=True,
    )  # fmt: skip


def test_a_wheel_that_was_changed_is_refused(tmp_path, monkeypatch):
    sum_ = wheel(tmp_path)
    page = f'<a href="../../files/tiny-1.0-py3-none-any.whl#sha256={sum_}">tiny</a>'
    monkeypatch.setattr(
        hashes.urllib.request, "urlopen", lambda *_, **__: io.BytesIO(page.encode())
    )
    path = tmp_path / "requirements.txt"
    path.write_text("# Kept.\ntiny==1.0\n")
    hashes.main([str(path), "--index", "index"])
    assert path.read_text() == f"# Kept.\ntiny==1.0 \\\n    --hash=sha256:{sum_}\n"
    assert install(tmp_path).returncode == 0
    wheel(tmp_path, "number = 2\n")
    refused = install(tmp_path)
    assert refused.returncode != 0
    assert "DO NOT MATCH THE HASHES" in refused.stderr


def test_a_pin_without_a_wheel_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(hashes.urllib.request, "urlopen", lambda *_, **__: io.BytesIO(b""))
    path = tmp_path / "requirements.txt"
    path.write_text("tiny==1.0\n")
    with pytest.raises(SystemExit, match="no index has a wheel"):
        hashes.main([str(path), "--index", "index"])
