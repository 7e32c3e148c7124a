"""What grades are written as: for the student, for the staff, and for the grading services."""

from mini_dnn.grading.outputs.write import write_all

__all__ = ["write_all"]
