"""Tries edits of a program before it proposes them, and writes those that won."""
