"""What ``rankhouse doctor`` looks at."""
