"""Recordings and traces: what they are (`model`, `trace`), and how each kind of file is read. No torch."""
