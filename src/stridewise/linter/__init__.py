"""Source rules: what the text of a program tells of its layouts, without running it. No torch."""
