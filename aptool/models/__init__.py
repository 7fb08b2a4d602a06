"""Rankers: encoders, poolings, similarities and heads; model folders; checkpoints of other libraries."""
