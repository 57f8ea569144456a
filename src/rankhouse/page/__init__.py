"""What people look at: one type of table, one way to draw, one frame for every page."""
