# The two commands of the README are `make demo` and `make test`. Both install what is missing: Debian packages by apt,
# Python ones into .venv, Go ones by go.mod.

SHELL := /bin/bash
PROTOC_VENV := build/protoc-venv

# protoc comes in a wheel; this one is old so that its Python output runs on every protobuf from 4.25 on.
$(PROTOC_VENV)/.ready:
	python3 -m venv $(PROTOC_VENV)
	$(PROTOC_VENV)/bin/pip install -q 'grpcio-tools==1.62.3' 'setuptools<81'
	touch $@

.PHONY: proto
proto: $(PROTOC_VENV)/.ready ## regenerate the committed code of the wire
	GOBIN=$(CURDIR)/build go install tool
	$(PROTOC_VENV)/bin/python -m grpc_tools.protoc -Iproto \
	  --plugin=build/protoc-gen-go --plugin=build/protoc-gen-go-grpc \
	  --go_out=proto --go_opt=paths=source_relative --go-grpc_out=proto --go-grpc_opt=paths=source_relative \
	  --python_out=torchrun --pyi_out=torchrun \
	  evenstep/v1/balancer.proto
