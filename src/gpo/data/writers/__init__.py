"""Writers: forecasts as NetCDF or Zarr with CF attributes, and The Well's HDF5 layout."""
