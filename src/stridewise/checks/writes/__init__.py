"""Writes in place: memory that several indices share."""
