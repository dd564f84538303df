"""Three versions of one unit, merged statement by statement; nothing here knows a project."""
