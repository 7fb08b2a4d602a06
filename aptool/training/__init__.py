"""Training: data, negatives, losses, the loop, checkpoints, and several processes or seeds."""
