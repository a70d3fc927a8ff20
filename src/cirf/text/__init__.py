"""Text of rationales: sentences, numbers, arithmetic, marks of steps."""
