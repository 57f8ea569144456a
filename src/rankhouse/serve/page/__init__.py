"""The page: ask, compare, ask why, judge, train, in a browser; plain HTML, one style sheet, one script."""
