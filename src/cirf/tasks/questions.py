"""Telling whether two questions are the same one."""

from __future__ import annotations


def same_question_key(question: str) -> str:
    """The question up to case and white space: what leaks and duplicates are found by."""
    return " ".join(question.casefold().split())
