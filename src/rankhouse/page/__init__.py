"""Tables, charts and pages for people: one type of table, one way to draw, one frame for every page."""
