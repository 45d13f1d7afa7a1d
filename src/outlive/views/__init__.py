"""Views: journals as people read them. They only read, and need no flow's code."""
