"""JSON Schemas of what policyguard reads and writes."""
