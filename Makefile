# CI is .ci/run. `make torture` takes hours: `python -m tests.torture --help` says more.
PYTHON ?= .venv/bin/python
MINUTES ?= 180

.PHONY: torture docs release demo-recording
torture:
	$(PYTHON) -m tests.torture --minutes $(MINUTES)

# The documentation site in build/site; needs the extra `docs`.
docs:
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet

# Builds dist/, checks it and tries it in a clean environment of every Python that is here; needs the
# extra `release`. TAG=v0.1.0 also checks that the tag names the version.
release:
	$(PYTHON) -m tools.release $(if $(TAG),--tag $(TAG))

# docs/demo.svg, from a run of `kctl demo`.
demo-recording:
	$(PYTHON) -m tools.record_demo
