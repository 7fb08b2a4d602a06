"""Training: negatives, the loop, and what it learns from."""
