"""Writers of forecasts as NetCDF, Zarr or CSV, and of The Well's HDF5 layout."""
