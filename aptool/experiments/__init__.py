"""Experiment matrices: systems trained and evaluated on collections with several seeds."""
