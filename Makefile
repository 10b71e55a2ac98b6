# The only entry point. `make help` says what there is.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VERSION ?= v0.0.0-dev
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null)
BUILDINFO := github.com/polylet/polylet/internal/buildinfo
LDFLAGS := -s -w -X $(BUILDINFO).Version=$(VERSION) -X $(BUILDINFO).Commit=$(COMMIT)
# grpcnotrace leaves out gRPC's events for /debug/requests, which polylet does
# not serve. Their templates call methods by name, so that the linker must keep
# every method of every type, used or not: a third of the executable.
TAGS    := grpcnotrace

# Every module of the workspace, and those with something to lint.
MODULES := api internal services/podsync services/probes services/stats services/nodestatus services/gateway cmd/polylet test
LINTED  := $(filter-out api,$(MODULES))
# Where the gateway's REST mapping is generated.
METRICS := ./internal/clientmetrics ./internal/daemon $(patsubst %,./services/%,podsync probes stats nodestatus gateway)
REST    := services/gateway/internal/rest
SEEDS   ?= 10000
NODE_TIMEOUT ?= 40m
RUN     ?= .
FOCUS   ?= \[sig-node\].*\[(Node)?Conformance\]
RUNS    ?= 1
PROCS   ?= 4
AGENT   ?= polylet
SERVICES ?=
FUZZTIME ?= 60s

comma := ,
step = @printf '\n==> %s\n' "$(1)"

.PHONY: help
help: ## Print every target
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Run

.PHONY: run cluster clean-node
run: ## A standalone node with a sample static pod; Ctrl-C stops it
	@go run ./test/cmd/node run
cluster: ## A one-node cluster (etcd, kube-apiserver, controllers, scheduler, polylet); Ctrl-C stops it
	@go run ./test/cmd/node cluster
clean-node: ## Remove what run and cluster left: containers, mounts, directories, network
	@go run ./test/cmd/node clean

##@ Build

.PHONY: build image
build: ## Build bin/polylet, static
	$(call step,build bin/polylet)
	@mkdir -p bin
	@CGO_ENABLED=0 go build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' -o bin/polylet ./cmd/polylet
	@ls -l bin/polylet | awk '{printf "bin/polylet, %.1f MB\n", $$5/1e6}'
image: build ## Build the container image polylet:dev (FROM scratch; needs docker)
	$(call step,image polylet:dev)
	@rm -rf .cache/image && mkdir -p .cache/image/run/polylet && cp -L bin/polylet .cache/image/
	@tar -C .cache/image --owner=0 --group=65532 --mode=1770 -cf .cache/image/run.tar run/polylet
	@docker build -q -f deploy/compose/Dockerfile -t polylet:dev .cache/image

##@ Test

.PHONY: test unit sim node conformance bench vm
test: build generate-check docs-check lint unit real ## Everything, as root, under 30 minutes on 2 cores
	@printf '\nall passed\n'
unit: gcc systemd-analyze ## Unit tests of all modules, with the race detector, shuffled
	$(call step,unit tests)
	@go test -race -shuffle=on -timeout=10m $(patsubst %,./%/...,$(MODULES))
sim: ## Simulation of podsync: SEEDS=10000 seeds on virtual time
	$(call step,simulation of $(SEEDS) seeds)
	@if [ -d services/podsync/internal/sim ]; then \
		POLYLET_SIM_SEEDS=$(SEEDS) go test -count=1 -timeout=30m ./services/podsync/internal/sim/...; \
	else echo "there is no simulation in this checkout" >&2; exit 1; fi
node: ## Tests on real parts: containerd, etcd, kube-apiserver (root); RUN=regexp picks some
	$(call step,node tests)
	@go run ./test/cmd/node install
	@go run ./test/cmd/peers >/dev/null
	@POLYLET_NODE_TESTS=1 go test -count=1 -p=1 -timeout=$(NODE_TIMEOUT) -v -run '$(RUN)' ./test/... 2>&1 \
		| grep --line-buffered -vE '^=== (RUN|PAUSE|CONT|NAME)' | tee bin/node-tests.log \
		|| { tools/failures bin/node-tests.log; exit 1; }
.PHONY: soak
soak: ## The node tests whole, with what only shows after many minutes (root); RUN=regexp picks some
	@POLYLET_LONG_TESTS=1 $(MAKE) node NODE_TIMEOUT=120m
.PHONY: node-page
node-page: ## Draw docs/node-page.png anew: the node's page in a headless Chromium on a real node (root)
	$(call step,the node's page in a browser)
	@go run ./test/cmd/node install
	@go run ./test/cmd/peers >/dev/null
	@POLYLET_NODE_TESTS=1 POLYLET_PAGE_SHOTS=$(CURDIR)/docs go test -count=1 -timeout=20m -v -run TestThePageShows ./test/node
# The suite's programs come from test/conformance, a module outside the workspace.
conformance: ## The upstream end-to-end suite on a one-node cluster (root); FOCUS=regexp, PROCS=4, RUNS=3 in a row, AGENT=kubelet compares, SERVICES=1 with kube-proxy and DNS
	$(call step,conformance)
	@nice -n 5 go run ./test/cmd/conformance -focus '$(FOCUS)' -procs '$(PROCS)' -runs '$(RUNS)' -agent '$(AGENT)' $(if $(SERVICES),-services)
.PHONY: fuzz fuzz-short
fuzz: ## Every fuzzer, one after the other, for FUZZTIME=60s each
	$(call step,fuzzers for $(FUZZTIME) each)
	@FUZZTIME=$(FUZZTIME) tools/fuzz $(MODULES)
# What reads what comes over the network.
NETWORKED := services/gateway services/nodestatus/internal/nodelog
# `make test` gives each fuzzer of what faces the network a minute, all of them
# at once, and the others a minute between them.
.PHONY: real fuzz-short
real:
	@tools/beside 'sim fuzz-short' node
fuzz-short:
	$(call step,fuzzers of what faces the network for 60s each)
	@FUZZTIME=60s FUZZERS=16 tools/fuzz $(NETWORKED)
	$(call step,the other fuzzers for 60s together)
	@others=$$(grep -rl --include='*_test.go' '^func Fuzz' $(MODULES) | grep -v $(patsubst %,-e '^%/',$(NETWORKED))); \
		FUZZTIME=$$((60000 / $$(grep -h '^func Fuzz' $$others | wc -l)))ms tools/fuzz $$others
vm: ## systemd as PID 1 and cgroup v2, in a virtual machine (root, qemu, about 15 min)
	$(call step,virtual machine)
	@go run ./test/cmd/vm
bench: ## How long pods take to be Ready, and the same for the runtime alone (root); ROWS=1 what else a node notices and costs, API=1 what its API gives, beside a kubelet
	$(call step,benchmark)
	@go run ./test/bench $(if $(ROWS),-rows -agents polylet$(comma)kubelet)$(if $(API),-api -burst 20 -agents polylet$(comma)kubelet)

##@ Code

.PHONY: lint fmt docs docs-check generate generate-check breaking accept-protos tidy vuln licenses
lint: tools-lint ## Lint all modules
	$(call step,lint)
	@bin/golangci-lint run --allow-parallel-runners --timeout=20m $(patsubst %,./%/...,$(LINTED))
fmt: tools-lint ## Format all modules
	@bin/gofumpt -l -w $(LINTED)
generate: tools-api third-party ## Generate Go from api/proto and services/gateway/gateway.yaml
	$(call step,generate)
	@cd api && ../bin/buf generate && rm -rf gen/io
	@rm -rf $(REST)/gen && cd api && ../bin/buf generate --template ../services/gateway/buf.gen.yaml -o ../$(REST)
generate-check: tools-api third-party breaking ## Lint the protos, check that they only grow and that what is generated is current
	$(call step,protos: lint and generated code)
	@cd api && ../bin/buf lint
	@rm -rf .cache/generated && mkdir -p .cache/generated
	@cd api && ../bin/buf generate -o ../.cache/generated
	@diff -r .cache/generated/gen/polylet api/gen/polylet || { echo "api/gen is not what api/proto generates: run make generate" >&2; exit 1; }
	@cd api && ../bin/buf generate --template ../services/gateway/buf.gen.yaml -o ../.cache/generated/rest
	@diff -r .cache/generated/rest/gen $(REST)/gen || { echo "$(REST)/gen is not what gateway.yaml generates: run make generate" >&2; exit 1; }
breaking: tools-api third-party ## Check that the protos only grow since they were last accepted
	$(call step,protos: breaking changes)
	@mkdir -p .cache && cd api && ../bin/buf build -o ../.cache/protos.binpb && \
		../bin/buf breaking ../.cache/protos.binpb --against lock.binpb --config '{"version":"v2","breaking":{"use":["FILE"]}}'
docs: ## Write docs/metrics.md from what the processes register
	$(call step,docs/metrics.md)
	@go test -count=1 -run 'MetricsAreAsRecorded|EveryProcessShows|SeriesThatDashboardsKnow' $(METRICS) -update >/dev/null
	@go run ./test/cmd/metricsdoc
docs-check: docs ## Check that docs/metrics.md and the lists of metrics are what the processes register
	@git diff --exit-code -- docs/metrics.md '*metrics.golden' || { echo "commit what make docs has written" >&2; exit 1; }
accept-protos: tools-api third-party generate-check ## Accept the protos as the state that later ones may not break
	@cd api && ../bin/buf build -o lock.binpb
tidy: ## go mod tidy in all modules
	@for m in $(MODULES); do echo "$$m"; (cd $$m && GOWORK=off go mod tidy); done
	@go work sync
vuln: tools-dev ## Look for known vulnerabilities in what is used
	@for m in $(MODULES); do (cd $$m && $(CURDIR)/bin/govulncheck ./...); done
licenses: tools-dev ## List the licences of all that the executable links
	@cd cmd/polylet && GOWORK=off $(CURDIR)/bin/go-licenses report . 2>/dev/null

##@ Tools

.PHONY: tools tools-api tools-lint tools-dev peers third-party gcc systemd-analyze
tools: tools-api tools-lint tools-dev ## Install all development tools into bin/
tools-api:
	@tools/install .
tools-lint:
	@tools/install lint
tools-dev:
	@tools/install dev
peers: ## Build the programs that node tests run against, ahead of time
	@go run ./test/cmd/peers
# metrics.proto comes with the Go module that holds its generated code.
third-party:
	@dir=$$(cd internal && go list -m -f '{{.Dir}}' github.com/prometheus/client_model) && \
		install -D -m 0644 "$$dir/io/prometheus/client/metrics.proto" api/third_party/io/prometheus/client/metrics.proto
# The race detector needs a C compiler.
gcc:
	@command -v gcc >/dev/null || { echo "installing gcc for the race detector ..."; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null; }
systemd-analyze:
	@command -v systemd-analyze >/dev/null || { echo "installing systemd, which reads our units in a test ..."; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends systemd >/dev/null; }
