"""Material for students: a copy of the repository without solutions, and assignment sheets."""
