"""Postgres connection and what every statement needs."""
