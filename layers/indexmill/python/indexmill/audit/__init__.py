"""The log group of the audit."""
