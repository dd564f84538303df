"""One unit in three versions, merged statement by statement; it knows no project."""
