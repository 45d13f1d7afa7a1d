"""The crash lab: kill a process at each durable point, resume, audit."""
