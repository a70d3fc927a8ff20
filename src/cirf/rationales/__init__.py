"""Worked solutions: collected and checked, brought into plain form, cut into steps, each with its result."""
