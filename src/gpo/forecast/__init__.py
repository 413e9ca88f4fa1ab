"""A trained model with its units: the task, the forecaster, rollouts and examples."""
