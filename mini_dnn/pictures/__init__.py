"""Pictures from files and folders, made into what a network takes."""
