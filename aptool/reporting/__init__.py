"""What a person looks at: heat maps, plots and the report."""
