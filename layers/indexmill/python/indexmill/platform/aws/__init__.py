"""AWS as every service uses it: clients, queues, objects, secrets, the state table."""
