"""Clock, request deadlines and retry back-off."""
