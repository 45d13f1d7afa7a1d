"""One program per contestant: it is given a work, a size and a folder, and prints JSON."""
