"""How answers are read and compared, a file for each kind of answer; ``cirf.tasks.parsing.answers`` is the entry point."""
