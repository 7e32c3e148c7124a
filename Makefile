# make run    set up, then ten thousand images through the network:  make run BATCH=100 IMPL=m1
# make docs   set up, then the documentation as a site, in build/site
# make setup  the virtual environment alone
# make handout  a copy for students, without solutions:  make handout KEEP=m1 OUT=../handout
# make test   set up, then style, types, and a sample of the tests; SAMPLE=word: another one; EXHAUSTIVE=1: all
PYTHON ?= python3
BATCH ?= 10000
IMPL ?= m3
SAMPLE ?= 0
EXHAUSTIVE ?=
VENV := .venv
comma := ,
export PATH := $(PATH):/usr/local/cuda/bin
# tests start hundreds of Pythons, each of which would compile every module anew
unexport PYTHONDONTWRITEBYTECODE
# PyCUDA builds from source, so it is tried only where a CUDA toolkit and a driver are found
# a few tests need many more packages, and are skipped without them; `make docs` needs docs
ALL := $(or $(EXHAUSTIVE),$(CI))
EXTRAS := dev$(if $(ALL),$(comma)exhaustive)$(if $(ALL)$(filter docs,$(MAKECMDGOALS)),$(comma)docs)$(shell PATH="$$PATH:/usr/local/cuda/bin:/sbin"; command -v nvcc >/dev/null \
	&& { command -v nvidia-smi || ldconfig -p 2>/dev/null | grep 'libcuda\.so\.1'; } >/dev/null && echo ',gpu')
# a test takes up to 1 GB of a GPU's memory
WORKERS := $(shell n=$$(nproc); m=$$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits 2>/dev/null | grep -om 1 '^[0-9]*'); \
	most=$$(($${m:-16384} / 1024)); most=$$((most < 2 ? 2 : most > 16 ? 16 : most)); echo $$((n < most ? n + 1 : most)))
STAMP := $(VENV)/.installed-$(subst $(comma),-,$(EXTRAS))
PYTEST := $(VENV)/bin/python -m pytest $(if $(EXHAUSTIVE),,"--sample=$(SAMPLE)")

.PHONY: setup run test docs handout format clean
setup: $(STAMP)

run: $(STAMP)
	$(VENV)/bin/python run.py --batch "$(BATCH)" --impl "$(IMPL)"
	@printf '\nNext:\n'
	@printf '  %-58s %s\n' '$(VENV)/bin/python run.py list' 'the variants, from the first to the fastest'
	@printf '  %-58s %s\n' '$(VENV)/bin/python run.py show m1' 'the first kernel, with its explanation'
	@printf '  %-58s %s\n' '$(VENV)/bin/python run.py new my_kernel --from m1' 'a kernel of your own, which starts as a copy of it'

# Tests run on all cores, and one more as some wait. Where there may be a GPU, those that measure on it come last,
# one after the other (status 5: there was none, so no test).
test: $(STAMP)
	$(PYTEST) -n $(WORKERS) --dist worksteal -m 'not gpu_alone'
	$(if $(findstring gpu,$(EXTRAS)),$(PYTEST) -m gpu_alone || test $$? = 5)

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet --config-file docs/site/mkdocs.yml
	@echo 'open build/site/index.html'

handout: $(STAMP)
	@test -n "$(OUT)" || { echo "make handout needs a new folder: make handout KEEP=m1 OUT=../handout"; exit 1; }
	$(VENV)/bin/python run.py handout --keep $(or $(KEEP),m1) --out "$(OUT)"

format: $(STAMP)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .
	git ls-files '*.cu' '*.cuh' '*.h' '*.hpp' '*.cpp' | xargs $(VENV)/bin/clang-format -i

# --no-compile: most of what is installed is never imported, and Python compiles what is
$(STAMP): pyproject.toml
	@command -v "$(PYTHON)" >/dev/null || { echo "PYTHON=$(PYTHON): there is no such program; try: make PYTHON=python3.12"; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "mini_dnn needs Python 3.11 or newer; $(PYTHON) is $$("$(PYTHON)" --version). Try: make PYTHON=python3.12"; exit 1; }
	@command -v $${CXX:-g++} >/dev/null || { echo "mini_dnn needs g++ (11 or newer): apt-get install g++"; exit 1; }
	"$(PYTHON)" -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[$(EXTRAS)]'
	@rm -f $(VENV)/.installed-* && touch $@

clean:
	rm -rf $(VENV) build *.egg-info
