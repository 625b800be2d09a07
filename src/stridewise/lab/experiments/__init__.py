"""One file an experiment. Each defines `EXPERIMENT`; a new file is found by itself."""
