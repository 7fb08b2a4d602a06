# Every target installs what it needs in .venv and changes nothing else on the machine.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DOCS_STAMP := .venv/.installed-docs
# They advertise their successors.
export DISABLE_MKDOCS_2_WARNING := true
export NO_MKDOCS_2_WARNING := true
QUIET := --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help setup test oracle test-cluster test-lowest test-wheel test-docs cluster-demo chaos audit docs pictures results lint fix eval reproduce bench hooks release clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /make \1\t/p' Makefile | expand -t 19

setup: $(STAMP)  ## install aptool and the tested versions of what it needs into .venv

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "aptool needs Python 3.11 or later: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install $(QUIET) -c constraints.txt --upgrade pip  # Python 3.11's knows no --group
	$(BIN)/python -m pip install $(QUIET) --no-compile -c constraints.txt -e '.[cluster,report]' --group test --group lint
	@# pip compiles on one core. Files that do not compile, such as templates, are never imported.
	$(BIN)/python -W ignore -m compileall -qq -j 0 .venv/lib aptool || true
	@touch $@

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install $(QUIET) -c constraints.txt --group docs
	@touch $@

eval: $(STAMP)  ## run the experiments of jobs/eval.toml, print their MAP/MRR table, write a report
	$(BIN)/aptool matrix jobs/eval.toml --jobs auto --output runs/eval
	$(if $(RECORD),$(BIN)/python -m bench.record runs/eval $(RECORD))
	$(BIN)/aptool report runs/eval --overwrite

reproduce: $(STAMP)  ## print the paper's tables with our figures: DATA=FOLDER VECTORS=FILE [QUICK=1: one seed]
	@test -n '$(DATA)' && test -n '$(VECTORS)' || { echo 'make reproduce DATA=FOLDER VECTORS=FILE' >&2; exit 2; }
	$(BIN)/aptool matrix jobs/reproduce.toml --let 'data=$(DATA)' --let 'vectors=$(VECTORS)' --output runs/reproduce \
		$(if $(QUICK),--quick) $(if $(JOBS),--jobs $(JOBS))
	$(if $(RECORD),$(BIN)/python -m bench.record runs/reproduce $(RECORD))
	$(BIN)/python jobs/paper_tables.py runs/reproduce

results: $(STAMP)  ## generate the tables and pictures of docs/results/ and the README [DATA=FOLDER: compute the figures of docs/results/runs/]
	$(BIN)/python tools/results.py $(if $(DATA),--data '$(DATA)')

test: $(STAMP)  ## run the tests
	$(BIN)/python -m pytest -n 2 --dist worksteal

oracle: $(STAMP)  ## compare every output on tiny inputs with the recorded hashes of tools/oracle.txt
	$(BIN)/python tools/output_hashes.py --compare tools/oracle.txt

test-cluster: $(STAMP)  ## run the tests that start a Ray cluster of several nodes: RETRY=1 runs failed tests twice
	@# Each file in a process of its own: what is left of a cluster that was killed ends with it.
	for file in tests/cluster/test_cluster_*.py; do $(BIN)/python -m pytest -m cluster $$file || \
		$(if $(RETRY),$(BIN)/python -m pytest -m cluster --last-failed $$file ||) exit 1; done

test-lowest:  ## run most tests with the lowest versions that pyproject.toml allows, in .venv-lowest
	$(PYTHON) -m venv --clear .venv-lowest
	.venv-lowest/bin/python -m pip install $(QUIET) -c constraints.txt --upgrade pip
	.venv-lowest/bin/python -m pip install $(QUIET) -c constraints-lowest.txt -e '.[cluster,report]' --group test-core
	.venv-lowest/bin/python -m pytest -n 2 --dist worksteal $(LOWEST)
	for test in scoring training; do .venv-lowest/bin/python -m pytest -m cluster tests/cluster/test_cluster_$$test.py || exit 1; done

# Left out: networks of many kinds, some of which draw torch's own warnings; TF32, whose settings have other names
# before PyTorch 2.9.
LOWEST := tests/cluster tests/data tests/evaluation tests/models tests/scoring tests/text \
	--ignore tests/models/test_network_kinds.py \
	--deselect tests/scoring/test_devices.py::test_products_are_not_in_tf32

test-wheel: $(STAMP)  ## install the wheel alone in .venv-wheel and use it, first without PyTorch, then with it
	rm -rf dist
	$(BIN)/python -m pip wheel $(QUIET) --no-deps --wheel-dir dist .
	$(PYTHON) -m venv --clear .venv-wheel
	.venv-wheel/bin/python -m pip install $(QUIET) -c constraints.txt dist/aptool-*.whl
	.venv-wheel/bin/python -I tests/package/without_torch.py
	.venv-wheel/bin/python -m pip install $(QUIET) -c constraints.txt "$$(ls dist/aptool-*.whl)[torch]"
	.venv-wheel/bin/python -I tests/package/use_wheel.py

cluster-demo: $(STAMP)  ## start two nodes on this machine, run a small evaluation on them as jobs, stop them
	$(BIN)/python jobs/demo.py

chaos: $(STAMP)  ## kill train, score and matrix at random moments and repeat them: SEED=1, TRIALS=60, ONLY=number of one trial, RECORD=file
	PYTHONPATH=.:tests OMP_NUM_THREADS=1 POLARS_MAX_THREADS=1 TOKENIZERS_PARALLELISM=false \
		$(BIN)/python tools/chaos.py --seed $(or $(SEED),1) --trials $(or $(TRIALS),60) \
		$(if $(ONLY),--only $(ONLY)) $(if $(RECORD),--record $(RECORD))

audit: $(STAMP)  ## check licences, and known vulnerabilities of the tested versions, which needs a network
	$(BIN)/python -m pip install $(QUIET) -c constraints.txt --group audit
	$(BIN)/python jobs/audit.py

docs: $(DOCS_STAMP)  ## build the site into site/; a broken link ends it
	$(BIN)/python -m mkdocs build --strict --quiet

pictures: eval  ## draw the pictures of the docs from what `make eval` leaves; needs chromium
	$(BIN)/python docs/site/pictures.py

test-docs: $(DOCS_STAMP)  ## run the commands and the Python of the docs on small data, and the notebooks: ONLY=file of tests/docs
	$(BIN)/python -m pytest -m docs tests/docs$(if $(ONLY),/$(ONLY))

lint: $(STAMP)  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fix: $(STAMP)  ## format, and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## measure scoring, evaluation and training: [DEVICE=cuda]
	for name in scoring end_to_end training; do $(BIN)/python -m bench.$$name $(if $(DEVICE),--device $(DEVICE)) || exit 1; done
	$(BIN)/python -m bench.evaluation

hooks: $(STAMP)  ## have git run the checks of `make lint` before each commit
	$(BIN)/python -m pip install $(QUIET) -c constraints.txt --group release
	$(BIN)/pre-commit install

release: $(STAMP)  ## build, check and tag a release: VERSION=0.3.0
	$(BIN)/python jobs/check_release.py '$(VERSION)'
	$(MAKE) test-wheel
	$(BIN)/python -m pip install $(QUIET) -c constraints.txt --group release
	$(BIN)/python -m build --sdist --outdir dist
	$(BIN)/python -m twine check --strict dist/*
	git tag -a 'v$(VERSION)' -m 'aptool $(VERSION)'
	@echo 'dist/ and the tag v$(VERSION) are ready: twine upload dist/*, git push --follow-tags'

clean:  ## remove the virtual environments and every cache; data/, models/ and runs/ stay
	rm -rf .venv .venv-lowest .venv-wheel .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
