"""Tables as files, one format a module: a writer knows a format's syntax and nothing of what a table is about."""
