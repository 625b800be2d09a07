"""Source that may be edited, the edits, and the live code that runs it."""
