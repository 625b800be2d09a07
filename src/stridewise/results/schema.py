"""Which schema results follow as JSON."""

SCHEMA_VERSION = 1
"""It changes when a field is renamed, removed, or changes its meaning."""
