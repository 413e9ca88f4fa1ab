"""Ways to save named arrays; each takes a folder and returns what to open."""

import h5py
import numpy as np
import scipy.io


def save_npz(path, arrays):
    np.savez(path / "data.npz", **arrays)
    return path / "data.npz"


def save_folder(path, arrays):
    for name, array in arrays.items():
        np.save(path / f"{name}.npy", array)
    return path


def save_hdf5(path, arrays):
    with h5py.File(path / "data.h5", "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return path / "data.h5"


def save_matlab_5(path, arrays):
    scipy.io.savemat(path / "data.mat", {**arrays, "note": "text is no field"})
    return path / "data.mat"


def save_matlab_7(path, arrays):
    with h5py.File(path / "data.mat", "w") as file:
        for name, array in arrays.items():
            file[name] = np.atleast_2d(array).T
            file[name].attrs["MATLAB_class"] = np.bytes_("double")
        file["note"] = np.zeros((4, 1), np.uint16)
        file["note"].attrs["MATLAB_class"] = np.bytes_("char")
    return path / "data.mat"


SAVERS = [save_npz, save_folder, save_hdf5, save_matlab_5, save_matlab_7]
