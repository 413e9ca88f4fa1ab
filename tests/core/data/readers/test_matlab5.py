import contextlib

import numpy as np
import pytest
import scipy.io

from gpo.data.dataset import DataError
from gpo.data.readers.array_files import load_matlab_5, matlab_5_shapes
from tests.core.data.files import real_file

ARRAYS = {
    "small": np.arange(3.0),
    "single": np.random.default_rng(0).normal(size=(4, 5, 6)).astype(np.float32),
    "whole": np.arange(12, dtype=np.int16).reshape(3, 4),
    "imaginary": np.array([[1 + 2j, 3]]),
    "empty": np.zeros((0, 3)),
}
NOTES = {"text": "hello", "cells": np.array([1, "two"], dtype=object), "structure": {"a": 1}}


@pytest.mark.parametrize("compressed", [False, True])
def test_numeric_arrays_are_those_scipy_reads_and_the_rest_is_left_out(tmp_path, compressed):
    path = tmp_path / "my.mat"
    scipy.io.savemat(path, {**ARRAYS, **NOTES}, do_compression=compressed)
    expected, loaded = scipy.io.loadmat(path), load_matlab_5(path)
    assert sorted(loaded) == sorted(ARRAYS)
    for name, values in loaded.items():
        np.testing.assert_array_equal(values, expected[name])
        assert matlab_5_shapes(path)[name] == expected[name].shape


@pytest.mark.parametrize(
    "parts",
    [("cylinder_wake", "cylinder_nektar_wake.mat"), ("small_pde", "KS.mat")],
)
def test_real_files_of_matlab_itself_are_whole(parts):
    path = real_file(*parts)
    expected = {name: shape for name, shape, _ in scipy.io.whosmat(path)}
    assert matlab_5_shapes(path) == expected


@pytest.mark.thorough
def test_every_truncation_is_detected_except_between_two_arrays(tmp_path):
    path = tmp_path / "my.mat"
    scipy.io.savemat(path, ARRAYS)
    whole = path.read_bytes()
    quiet = 0
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with contextlib.suppress(DataError):
            matlab_5_shapes(path)
            quiet += 1
    assert quiet == len(ARRAYS)


def test_another_version_is_refused_with_advice(tmp_path):
    path = tmp_path / "old.mat"
    scipy.io.savemat(path, {"a": np.eye(3)}, format="4")
    with pytest.raises(DataError, match=r"version 5 or 7.3. Save it in MATLAB with -v7"):
        load_matlab_5(path)
