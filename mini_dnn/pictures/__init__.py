"""Pictures from files and folders, converted to the input of a network."""
