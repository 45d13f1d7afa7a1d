"""The composition root and its parts: start runs, look at them, write to them."""
