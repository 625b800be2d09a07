"""Recording single steps of a long run: when their turn comes, and how one is recorded without harm. No torch yet."""
