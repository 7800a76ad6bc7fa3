"""What runs beside the functions on a laptop: the database, and stand-ins for what others run."""
