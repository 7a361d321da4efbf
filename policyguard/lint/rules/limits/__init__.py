"""Rules about limits, budgets and radius schedules."""
