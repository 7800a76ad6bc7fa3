"""Platform under the services: settings, logs, HTTP, queues, blobs, Postgres, time."""
