"""The output formats of grades: for the student, for staff, and for grading services."""

from mini_dnn.grading.outputs.write import write_all

__all__ = ["write_all"]
