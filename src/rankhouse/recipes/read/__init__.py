"""From TOML to a plan of tasks."""
