"""Grading: submissions judged by a rubric, each in processes of its own."""
