"""An enemy of the command line: kills, full disks, wrong words, damaged files; and what came of them."""
