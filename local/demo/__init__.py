"""Demonstration: a small web site through the whole pipeline, checked and searched."""
