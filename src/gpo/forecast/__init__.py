"""Forecasts of a trained model in physical units: task, forecaster, rollouts, examples."""
