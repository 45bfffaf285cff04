# Every task of the project; CI runs the same ones. "make" prints the list.

.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

GO       ?= go
FUZZTIME ?= 20s
# Space-separated packages for "make test" and "make fuzz".
PACKAGES ?= ./...
# The modules whose tests "make test" runs and whose code "make lint" reads.
MODULES  := $(patsubst %/go.mod,%,$(wildcard go.mod bench/go.mod images/go.mod test/*/go.mod))
MODULES  := $(patsubst go.mod,.,$(MODULES))
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

LINT    = $(GO) tool -modfile=$(CURDIR)/tools/go.mod golangci-lint
SCRIPTS = $(shell git ls-files --cached --others --exclude-standard | xargs grep -lE '^\#!.*\b(ba)?sh$$' 2>/dev/null)

# What the tests and the demo call besides Go, and the packages that bring it.
TEST_NEEDS = gcc=gcc /usr/include/stdlib.h=libc6-dev git=git ip=iproute2 nft=nftables iptables=iptables sysctl=procps \
	runc=runc containerd=containerd

.PHONY: help
help: ## print these tasks
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build every command into bin/, static and stripped
	@mkdir -p bin
	@for dir in cmd/*/; do \
		name=$$(basename $$dir); [[ $$name != cni ]] || name=vpcroute; \
		CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/$$name ./$$dir; \
	done
	@ls -l bin

.PHONY: images
images: ## build the container images into bin/images, for amd64 and arm64
	@cd images && CGO_ENABLED=0 $(GO) run . -version $(VERSION) $(ARGS)

.PHONY: demo
demo: ## raise a VPC in a box with three nodes and show pods meet (KEEP=1 leaves it running, CLOUD=tencent talks to an emulated API)
	@tools/install-missing ip=iproute2
	@$(GO) build -o bin/demo ./test/netns/demo
	@bin/demo $(if $(CLOUD),-cloud $(CLOUD))

.PHONY: test
test: ## run every test, under the race detector
	@tools/install-missing $(TEST_NEEDS)
	@# "go vet" is part of "make lint". Results are not cached: the cache does not see
	@# that a program the tests build, or a manifest they apply, has changed.
	@$(GO) build -o bin/gotest ./test/gotest
	@failed=; for module in $(MODULES); do \
		(cd $$module && $(CURDIR)/bin/gotest -count=1 -race -vet=off -timeout 30m $(PACKAGES)) || failed+=" $$module"; \
	done; [[ -z $$failed ]] || { echo "tests failed in:$$failed"; exit 1; }

.PHONY: lint
lint: ## check style, vet, and the scripts
	@tools/install-missing shellcheck=shellcheck
	@shellcheck $(SCRIPTS)
	@failed=; for module in $(MODULES); do \
		(cd $$module && $(LINT) run --allow-parallel-runners --config $(CURDIR)/.golangci.yml ./...) || failed+=" $$module"; \
	done; [[ -z $$failed ]] || { echo "findings in:$$failed"; exit 1; }

.PHONY: fuzz
fuzz: ## fuzz each target for FUZZTIME (20s)
	@tools/install-missing $(TEST_NEEDS)
	@for package in $$($(GO) list $(PACKAGES)); do \
		for target in $$($(GO) test -vet=off -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			echo "$$package $$target"; \
			$(GO) test -vet=off -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$package; \
		done; \
	done

# Random steps of a soak.
SOAK ?= 50000

.PHONY: soak
soak: ## run the plugin's model test for SOAK random steps (50000), and tests that repeat in full
	@tools/install-missing $(TEST_NEEDS)
	@VPCROUTE_SOAK=$(SOAK) $(GO) test -vet=off -count=1 -timeout 0 -v -run '^TestModel$$|_R001$$|_R003$$|_R016$$' ./cmd/cni

.PHONY: bench
bench: bench-cni bench-datapath bench-routes ## run every benchmark

# Programs under measurement are all built the same way.
BENCH_BUILD = CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w'
PEERS       = github.com/containernetworking/plugins/plugins
# Arguments for one benchmark's program, for example "-pods 0,110 -o json" for the
# plugin's or "-fresh 100 -large 1000" for the route controller's.
ARGS ?=

.PHONY: bench-cni
bench-cni: ## measure the plugin beside the reference bridge, ptp and host-local
	@$(BENCH_BUILD) -o bench/out/bin/vpcroute ./cmd/cni
	@cd bench && $(BENCH_BUILD) -o out/bin/ $(PEERS)/main/bridge $(PEERS)/main/ptp $(PEERS)/ipam/host-local
	@cd bench && $(BENCH_BUILD) -o out/bin/bench-cni ./cni && out/bin/bench-cni $(ARGS)

.PHONY: bench-datapath
bench-datapath: ## measure traffic between pods beside other shapes of network
	@$(BENCH_BUILD) -o bench/out/bin/vpcroute ./cmd/cni
	@cd bench && $(BENCH_BUILD) -o out/bin/ $(PEERS)/main/ptp $(PEERS)/ipam/host-local
	@cd bench && $(BENCH_BUILD) -o out/bin/bench-datapath ./datapath && out/bin/bench-datapath $(ARGS)

.PHONY: bench-routes
bench-routes: ## measure the route controller beside upstream's
	@cd bench && $(BENCH_BUILD) -o out/bin/ ./routes/ours ./routes/upstream
	@cd bench && $(BENCH_BUILD) -o out/bin/bench-routes ./routes && out/bin/bench-routes $(ARGS)

.PHONY: generate
generate: ## write every generated file again
	@$(GO) generate ./...
