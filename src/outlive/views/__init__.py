"""Views: journals in readable form. They only read, and need no flow's code."""
