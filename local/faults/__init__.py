"""Faults from outside: what production code never hears of happens at the edges of its libraries.

With the environment variable `FAULTS` set, the Lambda host runs every function with a `sitecustomize` of ours
(`injection/`), which stands between the code and botocore, psycopg and httpx; the host's own SQS calls go the
same way. What goes wrong where is read from a folder while everything runs (`control`), so nothing has to be
started again for the next fault.
"""
