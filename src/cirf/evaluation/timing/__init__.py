"""Seconds of methods: one answer at a time, and methods in turns."""
