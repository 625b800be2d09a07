"""Exported programs: which input layouts they were made for, and what they do with others."""
