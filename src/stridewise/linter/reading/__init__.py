"""What rules read from syntax and values together."""
