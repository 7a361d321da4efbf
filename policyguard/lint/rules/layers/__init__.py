"""Rules about layers that replace or weaken what they inherit."""
