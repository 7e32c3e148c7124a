"""The report: it reads results files and writes a page, plots, tables and the figures in the READMEs."""
