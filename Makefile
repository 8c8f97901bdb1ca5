# `make demo` and `make test`, for those who type make. quickstart.py does the work.
.PHONY: demo test
demo test:
	@python3 quickstart.py $@
