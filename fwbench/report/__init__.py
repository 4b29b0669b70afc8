"""Reports: tables, figures and a page, made from records alone."""
