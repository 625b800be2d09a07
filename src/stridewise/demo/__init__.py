"""A small model with a real fault in its layout, for `stridewise demo`: it stands for a program of a user's own."""
