"""What functions logged, for people: read, chosen by job or request, shown."""
