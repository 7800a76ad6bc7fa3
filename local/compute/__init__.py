"""The local Lambda service: real runtime clients, a process each, behind AWS's APIs."""
