"""What a recording and its source say together: which call an expression made, what names mean, where a line can go."""
