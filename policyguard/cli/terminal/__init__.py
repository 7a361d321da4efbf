"""What commands write: output, progress, status messages."""
