"""Coverage-guided fuzzing of everything that reads bytes from strangers (`make fuzz`)."""
