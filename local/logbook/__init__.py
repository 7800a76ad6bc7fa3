"""Function logs for people: read, filtered by job or request, formatted."""
