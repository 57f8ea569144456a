"""Work beyond one machine: slices of an input become parts, parts what one machine would write."""
