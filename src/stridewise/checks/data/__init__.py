"""What a loader yields: how samples lie in memory, what collate makes of them, and arrays that torch refuses."""
