"""The report: results files in; a page, plots, tables and the READMEs' figures out."""
