"""SQS consumer kernel: batch handler, delivery records, settling, stage results."""
