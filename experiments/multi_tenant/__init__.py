"""vTrain's multi-tenant study: what its grids show, as rows, tables, figures and a page."""
