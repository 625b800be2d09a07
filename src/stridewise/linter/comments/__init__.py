"""Comments that leave findings out."""
