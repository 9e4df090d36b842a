"""Values and tools that every room uses; it imports no other room."""
