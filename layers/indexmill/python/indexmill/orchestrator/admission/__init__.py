"""Admission: which pending jobs start when, and what is promised to those that wait."""
