"""The local Lambda service: AWS's runtime client in a process per environment, behind AWS's APIs."""
