"""Makes recordings: watches calls of torch while its profiler runs. What a recording is stands in `recording`."""
