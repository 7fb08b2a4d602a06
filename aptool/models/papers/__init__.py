"""Systems of other papers on answer selection, for comparison with attentive pooling."""
