"""What layout will do to a model, its optimizer and its data, looked at before the first step."""
