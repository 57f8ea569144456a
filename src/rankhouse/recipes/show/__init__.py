"""Tables, figures and pages of a result."""
