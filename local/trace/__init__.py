"""One job's way through the pipeline, put together from the database and the functions' logs."""
