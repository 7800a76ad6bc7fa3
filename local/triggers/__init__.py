"""What starts functions by itself: SQS event sources and schedules."""
