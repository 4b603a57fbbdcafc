# CI is .ci/run; this is what takes hours. `python -m tests.torture --help` says more.
PYTHON ?= .venv/bin/python
MINUTES ?= 180

.PHONY: torture
torture:
	$(PYTHON) -m tests.torture --minutes $(MINUTES)
