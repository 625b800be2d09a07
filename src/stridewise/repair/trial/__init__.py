"""A changed program against the unchanged one, in turn, in one process. The only part of `repair` that imports torch."""
