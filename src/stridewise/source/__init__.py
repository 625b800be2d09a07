"""Source files as people wrote them: where a node stands, edits that are checked, diffs. No torch."""
