"""Where journals live: one module per store, all of them keeping the promises of the seam."""
