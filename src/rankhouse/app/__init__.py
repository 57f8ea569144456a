"""Floor 4: where everything meets people: the command line, the demo, the engine."""
