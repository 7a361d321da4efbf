"""The evaluator: classify a call, evaluate limits, budgets and rules, fold events into state."""
