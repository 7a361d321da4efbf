"""A typed policy → evaluator: expressions, selectors, plans, learning settings."""
