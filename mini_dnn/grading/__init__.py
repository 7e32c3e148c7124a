"""Grading: a rubric judges submissions, each in separate processes."""
