"""Evaluation of runs: trec_eval's measures, significance tests, and fusion of runs."""
