"""Many files at once: in processes, with a cache, and their fixes."""
