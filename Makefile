# `make demo` and `make test`, for those who type make. quickstart.py does the work.
# `make docs` writes the documentation site to site/ (extra: docs).
.PHONY: demo test docs
demo test:
	@python3 quickstart.py $@
docs:
	@NO_MKDOCS_2_WARNING=1 $(or $(wildcard .venv/bin/python),python3) -m mkdocs build --strict
