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
METRICS := ./internal/clientmetrics ./internal/daemon $(patsubst %,./services/%,podsync probes stats nodestatus gateway)
# Where the gateway's REST mapping is generated.
REST    := services/gateway/internal/peer/rest
SEEDS   ?= 500
EXACT   ?= 10000
NODE_TIMEOUT ?= 75m
# So many node tests, and packages of unit tests, run at the same time.
PLACES  ?= 4
UNITS   ?= 3
RUN     ?= .
FOCUS   ?= \[sig-node\].*\[(Node)?Conformance\]
RUNS    ?= 1
PROCS   ?= 4
AGENT   ?= polylet
NODES   ?= 1
SERVICES ?=
GROUP   ?=
SEED    ?= 1
FUZZTIME ?= 60s

comma := ,
step = @printf '\n==> %s\n' "$(1)"

.PHONY: help
help: ## Print every target
	@awk -F ':.*## ' '/^##@ /{printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Run

.PHONY: run cluster kubeadm clean-node
# Built and then run: go run would call a Ctrl-C an error.
run: ## A standalone node with a sample static pod; Ctrl-C stops it
	@mkdir -p bin && go build -o bin/node ./test/cmd/node && exec bin/node run
cluster: ## A cluster (etcd, kube-apiserver, controllers, scheduler, polylet) of NODES=1; Ctrl-C stops it
	@mkdir -p bin && go build -o bin/node ./test/cmd/node && exec bin/node -nodes '$(NODES)' cluster
kubeadm: ## A cluster of NODES=2 that kubeadm 1.36.3 makes and joins, each node in namespaces of its own; Ctrl-C ends it
	@mkdir -p bin && go build -o bin/node ./test/cmd/node && exec bin/node -nodes '$(if $(filter-out file,$(origin NODES)),$(NODES),2)' kubeadm
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
	@tar -C .cache/image --owner=0 --group=60800 --mode=750 -cf .cache/image/run.tar run/polylet
	@for own in podsync:0 gateway:60801 probes:60802 stats:60803 nodestatus:60804; do \
		mkdir .cache/image/run/polylet/$${own%:*}.d && \
		tar -C .cache/image --owner=$${own#*:} --group=60800 --mode=750 -rf .cache/image/run.tar run/polylet/$${own%:*}.d || exit 1; done
	@docker build -q -f deploy/compose/Dockerfile -t polylet:dev .cache/image

##@ Test

.PHONY: test unit sim node conformance bench vm
test: ## Everything (CI runs this; root), and at the end how long each part took; about 50 minutes on 2 cores, more on the first run, which builds tools and peers
	@tools/timed setup build generate-check docs-check lint tests
	@printf '\nall passed\n'
# make lint vets. A program with the race detector sleeps at its end, for a second unless
# it is told otherwise, and there are more than 200.
unit: ## Unit tests of all modules, with the race detector, shuffled; installs nothing
	$(call step,unit tests)
	@tools/needed
	@GORACE=atexit_sleep_ms=100 go test -race -vet=off -shuffle=on -timeout=20m -p=$(UNITS) $(patsubst %,./%/...,$(MODULES)) 2>&1 | tools/failures
# A seed of nodestatus' has a quarter of an hour, and takes longer than one of podsync's.
sim: ## Simulation of podsync: the first SEEDS=500 seeds on virtual time, what its planner makes of as many pods, and half as many seeds of what nodestatus evicts
	$(call step,simulation of $(SEEDS) seeds)
	@if [ -d services/podsync/internal/sim ]; then \
		POLYLET_SIM_SEEDS=$(SEEDS) go test -vet=off -count=1 -timeout=30m ./services/podsync/internal/sim/... 2>&1 | tools/failures && \
		POLYLET_SIM_SEEDS=$(SEEDS) go test -vet=off -count=1 -timeout=10m -run 'PlanConverges|TestOfWhateverAPodIsHeldUp' ./services/podsync/internal/lifecycle/worker/internal/plan 2>&1 | tools/failures && \
		POLYLET_SIM_SEEDS=$$(( ($(SEEDS) + 1) / 2 )) go test -vet=off -count=1 -timeout=30m ./services/nodestatus/internal/sim 2>&1 | tools/failures; \
	else echo "there is no simulation in this checkout" >&2; exit 1; fi
.PHONY: soak-sim seeds replay exact
seeds: ## Simulation of the first EXACT=10000 seeds, each with its goroutines in one order: what passes once passes again
	$(call step,simulation of $(EXACT) seeds in exact order)
	@go test -vet=off -count=1 -timeout=90m ./services/podsync/internal/sim -exact -run TestPodsyncKeepsItsPromisesWhateverFails -seeds $(EXACT) 2>&1 | tools/failures
soak-sim: ## Simulation of SEEDS seeds that were never run before: the first is chosen at random, and printed
	@first=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' '); echo "seeds from $$first on"; \
		go test -count=1 -timeout=0 ./services/podsync/internal/sim -run TestPodsyncKeepsItsPromisesWhateverFails -seeds $(SEEDS) -first $$first && \
		go test -count=1 -timeout=0 ./services/nodestatus/internal/sim -run TestNobodyIsEvicted -seeds $(SEEDS) -first $$first
# seeds and replay in one process, so that no seed is simulated twice without a load.
exact:
	$(call step,simulation of $(EXACT) seeds in exact order$(comma) 200 of them once more beside a load)
	@go test -vet=off -count=1 -timeout=90m -v ./services/podsync/internal/sim -exact -seeds $(EXACT) \
		-run 'TestASeedGivesTheSameTraceBesideALoad|TestPodsyncKeepsItsPromisesWhateverFails' 2>&1 | tools/failures
# SEED only when it is given: its default is that of `make e2e-node`.
replay: ## Simulation: 200 seeds twice, once beside a load, whose traces are compared; SEED=n replays one and prints its trace, STORY=1 with all that podsync logged
	$(call step,replay of the simulation)
	@go test -count=1 -timeout=60m -v ./services/podsync/internal/sim -exact $(if $(filter-out file,$(origin SEED)),\
		-run TestPodsyncKeepsItsPromisesWhateverFails -seed $(SEED) $(if $(STORY),-story),-run TestASeedGivesTheSameTraceBesideALoad)
.PHONY: node-longest node-others
# Each package has instances of its own, so that the others fit beside the longest.
node: ## Tests on real parts: containerd, etcd, kube-apiserver (root), PLACES=4 at the same time; RUN=regexp picks some
	@tools/named '$(RUN)' test/node $(REALTESTS)
	@mkdir -p bin
	@go run ./test/cmd/node install
	@go run ./test/cmd/peers >/dev/null
	@go build -o bin/places ./test/cmd/places
	@POLYLET_BUILT=$(CURDIR)/bin QUIET_NICE=0 tools/beside node-others node-longest
# The packages whose tests ask for real parts; those of the others are unit tests.
REALTESTS = $(patsubst %,./%,$(filter-out test/node,$(sort $(patsubst %/,%,$(dir $(shell grep -rl --include='*_test.go' 'polylet/test/harness/realtest"' test))))))
# Its tests wait most of their time: PLACES of them run at the same time, each in a
# process of its own (test/cmd/places). A cluster with a node has 22 inotify instances.
node-longest:
	$(call step,node tests)
	@POLYLET_NODE_TESTS=1 tools/twice bin/node-tests.log '$(RUN)' -p=1 -timeout=$(NODE_TIMEOUT) -exec '$(CURDIR)/bin/places -n $(PLACES) -watchers 22' ./test/node
node-others:
	$(call step,node tests of the other packages)
	@POLYLET_NODE_TESTS=1 tools/twice bin/node-others.log '$(RUN)' -p=1 -timeout=$(NODE_TIMEOUT) $(REALTESTS)
.PHONY: soak
soak: soak-sim seeds ## SEEDS new seeds of the simulation, all EXACT=10000 exact ones, then the node tests whole, with what only shows after many minutes (root); RUN=regexp picks some
	@POLYLET_LONG_TESTS=1 $(MAKE) node NODE_TIMEOUT=120m
.PHONY: soak-config
soak-config: ## CONFIGS=200 random configurations one after the other on a node with CONFIG_PODS=30 probed pods, whatever is killed (root; half an hour); POLYLET_TEST_SEED=n repeats one
	@POLYLET_TEST_PODS=$(or $(CONFIG_PODS),30) POLYLET_TEST_CHANGES=$(or $(CONFIGS),200) $(MAKE) node NODE_TIMEOUT=120m RUN=TestPodsDoNotNoticeRandomConfigurations
.PHONY: observed
observed: ## Change each field of the configuration on a running node, and write what becomes of it into docs/configuration-observed.txt and docs/configuration.md (root; 25 min); FIELDS=regexp picks some
	$(call step,each field of the configuration on a running node)
	@go run ./test/cmd/node install
	@POLYLET_NODE_TESTS=1 POLYLET_LONG_TESTS=1 POLYLET_TEST_FIELDS='$(FIELDS)' go test -count=1 -timeout=120m -v -run TestEachFieldOfTheConfiguration ./test/node -update
	@go test -count=1 -run TestThePageOfTheConfiguration ./internal/configslice -update
.PHONY: node-page
node-page: ## Draw docs/node-page.png anew: the node's page in a headless Chromium on a real node (root)
	$(call step,the node's page in a browser)
	@go run ./test/cmd/node install
	@go run ./test/cmd/peers >/dev/null
	@POLYLET_NODE_TESTS=1 POLYLET_PAGE_SHOTS=$(CURDIR)/docs go test -count=1 -timeout=20m -v -run TestThePageShows ./test/node
# The suite's programs come from test/conformance, a module outside the workspace.
conformance: ## The upstream end-to-end suite on a cluster of NODES=1 (root); FOCUS=regexp, PROCS=4, RUNS=3 in a row, AGENT=kubelet compares, SERVICES=1 with kube-proxy and DNS, SKIP=file of what is left out, CSI=1 for the suite's CSI drivers, GATES=names of feature gates that are on, APART=1 with a process 1 of its own
	$(call step,conformance)
	@nice -n 5 $(if $(APART),tools/apart) go run ./test/cmd/conformance -focus '$(FOCUS)' -procs '$(PROCS)' -runs '$(RUNS)' -agent '$(AGENT)' -nodes '$(NODES)' $(if $(SKIP),-skip-file '$(SKIP)') $(if $(SERVICES),-services) $(if $(CSI),-csi) $(if $(GATES),-gates '$(GATES)')
# FOCUS only when it is given: its default is that of `make conformance`.
.PHONY: e2e-node
e2e-node: ## The upstream node suite in namespaces of its own (root); AGENT=kubelet writes down what that passes, GROUP=par,restart,… FOCUS=regexp SEED=1
	$(call step,node end-to-end suite)
	@nice -n 5 go run ./test/cmd/e2enode -agent '$(AGENT)' -group '$(GROUP)' -seed '$(SEED)' $(if $(filter-out file,$(origin FOCUS)),-focus '$(FOCUS)')
.PHONY: fuzz fuzz-short
fuzz: ## Every fuzzer, one after the other, for FUZZTIME=60s each
	$(call step,fuzzers for $(FUZZTIME) each)
	@FUZZTIME=$(FUZZTIME) tools/fuzz $(MODULES)
# What reads what comes over the network.
NETWORKED := services/gateway services/nodestatus/internal/nodelog
# `make test` gives each fuzzer of what faces the network a minute, all of them
# at once, and the others a minute between them.
.PHONY: tests waiting fuzz-short
# What waits for processes and timers, and beside it what only computes.
tests:
	@tools/beside 'sim fuzz-short exact' waiting
waiting:
	@tools/timed unit peers node
fuzz-short:
	$(call step,fuzzers of what faces the network for 60s each)
	@FUZZTIME=60s FUZZERS=16 tools/fuzz $(NETWORKED)
	$(call step,the other fuzzers for 60s together)
	@others=$$(grep -rl --include='*_test.go' '^func Fuzz' $(MODULES) | grep -v $(patsubst %,-e '^%/',$(NETWORKED))); \
		FUZZTIME=$$((60000 / $$(grep -h '^func Fuzz' $$others | wc -l)))ms tools/fuzz $$others
vm: ## systemd as PID 1 and cgroup v2, in a virtual machine (root, qemu, about 15 min); RUN=regexp picks some tests
	$(call step,virtual machine)
	@tools/named '$(RUN)' test/vm
	@go run ./test/cmd/vm $(if $(filter-out file,$(origin RUN)),-run '$(RUN)')
.PHONY: vm-kubeadm
vm-kubeadm: ## kubeadm init and reset by way of kubelet.service, in that machine (root, qemu, about 30 min)
	$(call step,kubeadm in a virtual machine)
	@go run ./test/cmd/vm -kubeadm
.PHONY: vm-joined
vm-joined: ## A configuration from the cluster over a reboot, eviction, a machine out of memory, MemoryQoS, a stop while a filesystem is made, a reboot and a shutdown by logind on a node that joins a cluster, in that machine (root, qemu, about 45 min); POLYLET_EDGE=10m has it longer at the edge of its memory
	$(call step,a node of a cluster in a virtual machine)
	@go run ./test/cmd/vm -joined $(if $(filter-out file,$(origin RUN)),-run '$(RUN)')
.PHONY: vm-selinux
vm-selinux: ## A node that joins a cluster on a kernel with SELinux, permissive and then enforcing, in that machine (root, qemu, about 10 min)
	$(call step,a node with SELinux in a virtual machine)
	@go run ./test/cmd/vm -selinux $(if $(filter-out file,$(origin RUN)),-run '$(RUN)')
.PHONY: vm-fc
vm-fc: ## Fibre Channel on a standalone node: a fabric of the kernel's own initiator and target, over Ethernet, in that machine with another kernel (root, qemu, about 10 min)
	$(call step,disks of a Fibre Channel fabric in a virtual machine)
	@go run ./test/cmd/vm -fc $(if $(filter-out file,$(origin RUN)),-run '$(RUN)')
.PHONY: vm-suite
vm-suite: ## The upstream node suite in such a machine of its own (root, qemu, an hour and more); AGENT=kubelet writes down what that passes, GROUP=serial,shutdown,swap,… FOCUS=regexp SEED=1
	$(call step,node end-to-end suite in a virtual machine)
	@nice -n 5 go run ./test/cmd/e2enode -vm -agent '$(AGENT)' -group '$(or $(GROUP),serial)' -seed '$(SEED)' $(if $(filter-out file,$(origin FOCUS)),-focus '$(FOCUS)')
bench: ## How long pods take to be Ready, and the same for the runtime alone (root); ROWS=1 what else a node notices and costs, VOLUMES=1 pods with volumes, API=1 what its API gives, beside a kubelet
	$(call step,benchmark)
	@go run ./test/bench $(if $(ROWS),rows -agents polylet$(comma)kubelet,$(if $(VOLUMES),volumes -agents polylet$(comma)kubelet,$(if $(API),api -burst 20 -agents polylet$(comma)kubelet,pods)))

##@ Code

.PHONY: lint fmt docs docs-check generate generate-check breaking accept-protos tidy vuln licenses
lint: tools-lint ## Lint all modules, and look for functions that neither a program nor a test reaches
	$(call step,lint)
	@bin/golangci-lint run --allow-parallel-runners --timeout=20m $(patsubst %,./%/...,$(LINTED))
	$(call step,dead code)
	@dead=$$(bin/deadcode -test -filter '^github.com/polylet/polylet' $(patsubst %,./%/...,$(MODULES))); \
		[ -z "$$dead" ] || { echo "$$dead"; echo "nothing calls these, tests included: remove them" >&2; exit 1; }
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
docs: ## Write docs/metrics.md from what the processes register, docs/rules.md from docs/rules, docs/configuration.md's table, and where the tests are that docs/security.md names
	$(call step,docs/metrics.md$(comma) docs/rules.md and the links of docs/security.md)
	@go test -count=1 -run 'MetricsAreAsRecorded|EveryProcessShows|SeriesThatDashboardsKnow' $(METRICS) -update >/dev/null
	@go run ./test/cmd/metricsdoc
	@go run ./test/cmd/rulesdoc
	@go test -count=1 -run TestTheSecurityPage ./test -update
	@go test -count=1 -run TestThePageOfTheConfiguration ./internal/configslice -update
docs-check: docs ## Check that docs/metrics.md, the lists of metrics and docs/rules.md are current, and that docs/security.md names tests that are there; prints how many rules have no test
	@go test -count=1 -run TestTheSecurityPage ./test
	@git diff --exit-code -- docs/metrics.md docs/rules.md docs/security.md docs/configuration.md '*metrics.golden' || { echo "commit what make docs has written" >&2; exit 1; }
accept-protos: tools-api third-party generate-check ## Accept the protos as the state that later ones may not break
	@cd api && ../bin/buf build -o lock.binpb
tidy: ## go mod tidy in all modules
	@for m in $(MODULES); do echo "$$m"; (cd $$m && GOWORK=off go mod tidy); done
	@go work sync # which raises versions, without their sums
	@for m in $(MODULES); do (cd $$m && GOWORK=off go mod tidy); done
vuln: tools-dev ## Look for known vulnerabilities in what is used
	@for m in $(MODULES); do (cd $$m && $(CURDIR)/bin/govulncheck ./...); done
licenses: tools-dev ## List the licences of all that the executable links
	@cd cmd/polylet && GOWORK=off $(CURDIR)/bin/go-licenses report . 2>/dev/null

##@ Tools

.PHONY: tools tools-api tools-lint tools-dev peers third-party setup
tools: tools-api tools-lint tools-dev ## Install all development tools into bin/
tools-api:
	@tools/install .
tools-lint:
	@tools/install lint
tools-dev:
	@tools/install dev
peers: ## Install and build what node tests run against, ahead of time (root)
	$(call step,what node tests run against)
	@go run ./test/cmd/node install
	@go run ./test/cmd/peers
# metrics.proto comes with the Go module that holds its generated code.
third-party:
	@dir=$$(cd internal && go list -m -f '{{.Dir}}' github.com/prometheus/client_model) && \
		install -D -m 0644 "$$dir/io/prometheus/client/metrics.proto" api/third_party/io/prometheus/client/metrics.proto
setup: ## Install the Debian packages that unit tests need, where they are missing (root); make test does it
	@tools/needed --install
