"""Hazards: where the layout of live objects makes results wrong. Operators, contracts, models, ranks, data."""
