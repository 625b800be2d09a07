"""Times versions of a program against each other, in turn, until it is clear which is faster."""
