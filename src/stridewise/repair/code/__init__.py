"""Live code that runs a source, and the swap of one for another."""
