"""Experiment matrices: which systems on which collections with which seeds, run and tabulated."""
