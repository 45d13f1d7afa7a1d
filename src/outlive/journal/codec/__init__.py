"""Values as bytes and back."""
