"""Fault injection from outside: production code contains none of it.

With the environment variable `FAULTS` set, the Lambda host runs every function with a `sitecustomize`
(`injection/`) that wraps the clients of AWS, psycopg and httpx; the host's own SQS calls are wrapped in the
same way. The faults are read from a folder at run time (`control`), so nothing is
restarted for the next fault.
"""
