"""The demonstration: a little web site through the whole pipeline, checked and searched."""
