"""A changed program against the unchanged one, in turn, in one process: the part of `repair` that imports torch."""
