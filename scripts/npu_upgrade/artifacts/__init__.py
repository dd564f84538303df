"""What a model adaptation leaves for others to read: config, tutorial, reports, all from evidence."""
