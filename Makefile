# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# What people and CI call. Everything that a target needs and a package manager or Go's module proxy can
# give, the target gets by itself; for the rest it says what is missing and how to fix it.
# Outputs go to bin/; what is kept between runs (the linter) goes to .cache/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

CC ?= cc
CFLAGS ?= -O2 -g
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)

# go-nvml names each function of its header, deprecated ones too: that is no news.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations
# gRPC's own traces need html/template, which calls methods by name. The linker then keeps every method of every type, and
# the agent is larger by half (verify-linked).
export GOFLAGS := $(filter-out -tags=grpcnotrace,$(GOFLAGS)) -tags=grpcnotrace
GO_BUILD := go build -buildvcs=false -ldflags '-X main.version=$(VERSION)'

# What the images hold is to be the same bytes from the same source, wherever and whenever it is built: no paths of the
# machine, and none of Go's own marks of how it came about.
RELEASE_BUILD = go build -buildvcs=false -trimpath -ldflags '-X main.version=$(VERSION) -X main.registry=$(REGISTRY) -buildid='

# kerf-hook is built alone: it runs as root in every container's start, linked statically and without cgo.
# kerf-scheduler is a separate module, since it is Kubernetes' code for the most part. kerf-nomad is one, because it needs
# packages of Nomad.
# kubectl-kerf is for other systems; on Linux, kerf under that name has all commands.
COMMANDS := $(filter-out kerf-hook kubectl-kerf,$(patsubst cmd/%/main.go,%,$(wildcard cmd/*/main.go)))
HOOK_OUT ?= bin/kerf-hook
SCHEDULER_OUT ?= $(CURDIR)/bin/kerf-scheduler
RELEASE ?= bin/release
REGISTRY ?=
# Debian's compiler and emulator for arm64. What they build was not run on an arm64 node: there is none.
CROSS := $(CURDIR)/.cache/cross
# A make with these builds for arm64.
ARM64 := GOARCH=arm64 CGO_ENABLED=1 CC='$(CROSS)/bin/aarch64-linux-gnu-gcc'
# Packages without cgo whose tests need no driver: they run under the emulator.
PURE := ./api/... ./sharing ./sharing/allocator/... ./sharing/audit ./sharing/backend/choice ./sharing/config/... \
	./sharing/dra ./sharing/ledger ./sharing/node/record ./sharing/packing ./sharing/translate/... \
	./sharing/usage ./mig ./mig/plan ./mig/parted ./hooks/oci/wire ./internal/present ./monitor/attribution ./sim/machine ./sim/wire

# The systems of kubectl-kerf.
CLI_PLATFORMS := darwin/amd64 darwin/arm64 linux/amd64 linux/arm64 windows/amd64 windows/arm64
PROTOS := api/node/v1alpha1/node.proto api/telemetry/v1alpha1/telemetry.proto
PROTOC_PLUGINS := google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc

TOOLS := $(CURDIR)/bin/tools
# Kubernetes is compiled in one way, by the end-to-end suite as well, so that it is compiled once.
AS_SCHEDULER := CGO_ENABLED=0 GOFLAGS=-trimpath
# Kerf's version, and that of kube-scheduler, which it compares with that of the API server.
SCHEDULER_FLAGS = -s -w -buildid= -X main.version=$(VERSION) -X k8s.io/component-base/version.gitVersion=v1.37.1 -X k8s.io/component-base/version.gitMajor=1 \
	-X k8s.io/component-base/version.gitMinor=37

LINTER := $(CURDIR)/.cache/bin/golangci-lint
PROMTOOL := $(CURDIR)/.cache/bin/promtool
VULNCHECK := $(CURDIR)/.cache/bin/govulncheck
VALE := $(CURDIR)/.cache/bin/vale
ACTIONLINT := $(CURDIR)/.cache/bin/actionlint
# NVIDIA's own toolkit, in the version of tools/nvidiatoolkit/go.mod: the machine suite runs its hook.
TOOLKIT := $(CURDIR)/.cache/bin/nvidia-cdi-hook
# runc, in the version of the end-to-end suite: the machine suite runs it in a grant.
RUNC := $(CURDIR)/.cache/bin/runc
# NVIDIA's mig-parted, in the version of tools/migparted/go.mod: the machine suite runs it while the agent runs.
MIG_PARTED := $(CURDIR)/.cache/bin/nvidia-mig-parted
# NVIDIA's device plugin, GPU feature discovery and MPS daemon, in the version of tools/k8sdeviceplugin/go.mod.
DEVICE_PLUGIN := $(CURDIR)/.cache/bin/nvidia-device-plugin
# NVIDIA's DRA driver, in the version of tools/dradriver/go.mod.
DRA_DRIVER := $(CURDIR)/.cache/bin/gpu-kubelet-plugin
# Nomad, in the version of tools/nomad/go.mod. Version 1.7 and newer have no open-source license.
NOMAD := $(CURDIR)/.cache/bin/nomad

FUZZTIME ?= 5s
SOAK_STEPS ?= 1000000
SOAK_TIME ?= 30m
SOAK_SEED ?= 0
BENCH ?= .
PODS ?= 110
NODES ?= 1000
BOUND ?= 5000
MIG_PODS ?= $(if $(filter 0,$(PODS)),0,40)
KILLS ?= 100000
TRACES ?= .
ROUNDS ?= 1
# What make gate runs, as far as this Makefile has it, in this order. A name with "?" may say that it did not run.
GATE_TARGETS := test race race-scheduler verify console-browser demo e2e e2e-presets e2e-release attacks matrix versions userland fuzz-smoke sanitize nightly-guest reproducible soak
GATES ?= $(filter $(shell sed -n 's/^\([a-z0-9-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST))),$(GATE_TARGETS)) vulncheck?

##@ Build

.PHONY: build
build: need ## Build the programs, libkerf.so and the simulated driver into bin/
	@mkdir -p bin
	$(GO_BUILD) -o bin/ $(COMMANDS:%=./cmd/%) ./sim/cmd/gpusim ./lab/cmd/kerf-lab
	@ln -sf kerf bin/kubectl-kerf # as which kubectl finds it
	@$(MAKE) kerf-hook
	@$(MAKE) -s -C internal/libkerf/lib OUT='$(CURDIR)/bin' OBJ='$(CURDIR)/bin/.libkerf' CC='$(CC)' all
	@echo 'building the simulated driver and gpuload'
	@$(MAKE) -s -C sim/lib OUT='$(CURDIR)/bin/gpusim-lib' GPULOAD='$(CURDIR)/bin/gpuload' CC='$(CC)' all gpuload

.PHONY: build-arm64
build-arm64: need cross ## Build all programs and libraries for linux/arm64 into bin/arm64
	@mkdir -p bin/arm64
	$(ARM64) $(GO_BUILD) -o bin/arm64/ $(COMMANDS:%=./cmd/%) ./sim/cmd/gpusim ./lab/cmd/kerf-lab
	@$(MAKE) kerf-hook HOOK_OUT=bin/arm64/kerf-hook $(ARM64)
	@$(MAKE) kerf-scheduler SCHEDULER_OUT='$(CURDIR)/bin/arm64/kerf-scheduler' $(ARM64)
	@$(MAKE) -s -C internal/libkerf/lib OUT='$(CURDIR)/bin/arm64' OBJ='$(CURDIR)/bin/arm64/.libkerf' $(ARM64) all
	@$(MAKE) -s -C sim/lib OUT='$(CURDIR)/bin/arm64/gpusim-lib' GPULOAD='$(CURDIR)/bin/arm64/gpuload' $(ARM64) all gpuload

.PHONY: kerf-scheduler
kerf-scheduler: need ## Build the scheduler into bin/ (the first time some minutes: it is kube-scheduler with a plugin)
	cd scheduler && $(AS_SCHEDULER) go build -buildvcs=false -ldflags '$(SCHEDULER_FLAGS)' -o '$(SCHEDULER_OUT)' .

.PHONY: kerf-nomad
kerf-nomad: need ## Build the device plugin for Nomad into bin/
	cd nomad && $(AS_SCHEDULER) go build -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)' -o '$(CURDIR)/bin/kerf-nomad' .

.PHONY: release
release: release-arguments release-agent release-scheduler release-arm64 release-cli ## Write images, chart, command lines, krew manifest, SBOM, provenance and checksums to RELEASE/VERSION (VERSION=v1.2.3 REGISTRY=registry.example/kerf)
	@cd tools/release && CGO_ENABLED=0 go run . -root ../.. -programs '$(abspath $(RELEASE))' -out '$(abspath $(RELEASE))/$(VERSION)' \
		-version '$(VERSION)' -registry '$(REGISTRY)' -commit "$$(git rev-parse HEAD)" -epoch "$$(git log -1 --format=%ct)"

.PHONY: release-check
release-check: ## Make the release twice, the second time with programs linked anew, and compare
	@rm -rf bin/release-check
	@for n in 1 2; do $(MAKE) -s release RELEASE=bin/release-check/$$n VERSION='$(VERSION)' REGISTRY='$(REGISTRY)'; done
	@cat bin/release-check/1/'$(VERSION)'/SHA256SUMS
	@cmp bin/release-check/1/'$(VERSION)'/SHA256SUMS bin/release-check/2/'$(VERSION)'/SHA256SUMS
	@for n in 1 2; do (cd bin/release-check/$$n/'$(VERSION)' && sha256sum --check --quiet SHA256SUMS); done
	@echo 'release-check: the same files twice'

.PHONY: generate
generate: need tools ## Write the generated files: the protobuf files' Go code, the configuration's schema and reference, those of the command line, metrics, events and keys, the manifests of the chart
	@hack/protos.sh . $(PROTOS)
	@go test -count=1 -run '^TestCurrent$$' ./sharing/config/reference -write
	cd tools/chart && $(AS_SCHEDULER) go run . ../../deploy
	@go test -count=1 -run '^TestReference$$' ./internal/cli -update
	@cd tools && go run ./reference ..
	@cd tools && go run ./picture ../docs/picture.txt ../docs/picture.svg
	@cd tools && go run ./benchpages ../docs/benchmarks
	@cd tools && go run ./console ..

.PHONY: clean
clean: ## Remove bin/ (the linter in .cache/ stays; 'rm -r .cache' takes it too)
	rm -rf bin

##@ Test

# Most of the long packages wait for processes: they begin first, and four packages run at a time.
.PHONY: test
test: build $(TOOLKIT) $(RUNC) $(MIG_PARTED) ## Unit, golden and machine tests, and the tools' own tests
	go test -p 4 -timeout 15m ./test/machine ./internal/libkerf/lib/libtest ./sim/lib/libtest ./test/kit ./test/layers ./...
	cd tools && go test ./...
	cd scheduler && $(AS_SCHEDULER) go test ./...
	cd nomad && $(AS_SCHEDULER) go test ./...
	cd tools/chart && $(AS_SCHEDULER) go test ./...
	cd tools/release && go test ./...

.PHONY: test-arm64
test-arm64: need cross ## Tests of pure packages, built for arm64 and run under Debian's qemu-user
	GOARCH=arm64 CGO_ENABLED=0 go test -timeout 30m -exec '$(CROSS)/bin/qemu-aarch64' $(PURE)

# The race detector sees one process, and finds nothing where there is no goroutine: suites that test programs they start,
# and pure packages (test/layers has the rule), are left out.
NO_RACE := /test/|/lab/|/sim/lib/libtest$$|/libkerf/lib/libtest$$|/sharing$$|/sharing/(config|ledger|allocator|packing|faults|usage|listing|scheduler|simulate|translate)(/|$$)|/sharing/backend/(choice|reactive|libkerf/overhead|libkerf/contextsize|libkerf/compute)$$|/sharing/node/record$$|/mig$$|/mig/(plan|modeswitch|parted)$$|/monitor/(attribution|exposition)$$|/internal/present$$
.PHONY: race
race: build ## The tests of each package under the race detector
	go test -race -timeout 9m $$(go list ./... | grep -vE '$(NO_RACE)')

.PHONY: race-scheduler
race-scheduler: ## Tests of the plugins for kube-scheduler and Nomad under the race detector (the first time, dependencies take minutes to compile)
	cd scheduler && CGO_ENABLED=1 GOFLAGS=-trimpath go test -race -count=1 ./...
	cd nomad && CGO_ENABLED=1 GOFLAGS=-trimpath go test -race -count=1 ./...

.PHONY: sanitize
sanitize: need ## Tests of libkerf's and the simulator's C code with ASan, UBSan and TSan, in two minutes
	@hack/sanitize.sh

.PHONY: fuzz-smoke
fuzz-smoke: build ## Run every fuzz target for FUZZTIME (5s)
	hack/fuzz-smoke.sh $(FUZZTIME)

.PHONY: e2e
e2e: build kerf-scheduler $(TOOLKIT) ## End-to-end suite on a real Kubernetes with simulated GPUs; needs root (first time: minutes of building)
	hack/e2e.sh

.PHONY: e2e-kueue
e2e-kueue: build kerf-scheduler ## The recipe for Kueue with a real Kueue on a node as e2e's; needs root (first time: minutes of building Kueue, too)
	@cd test/e2e/node/kueue && go mod tidy -diff
	hack/e2e.sh -run '^TestKueue(Claims)?$$' -kueue=true

.PHONY: e2e-neighbors
e2e-neighbors: build kerf-scheduler kerf-nomad $(NOMAD) $(TOOLKIT) $(DEVICE_PLUGIN) $(DRA_DRIVER) ## Type the commands of the pages for Podman, Slurm, Nomad, JobSet, KubeRay, Karpenter, Volcano and NVIDIA's plugins, with these tools and simulated GPUs; needs root (builds all but Podman and Slurm)
	hack/neighbors.sh
	go test -count=1 -v -timeout 30m -run '^TestNeighbor' ./test/machine -patience 5m \
		-neighbors '$(CURDIR)/.cache/neighbors' -nomad '$(NOMAD)'
	@cd test/e2e/node/jobset && go mod tidy -diff
	@cd test/e2e/node/kuberay && go mod tidy -diff
	@cd test/e2e/node/karpenter && go mod tidy -diff
	@cd test/e2e/node/volcano && go mod tidy -diff
	hack/e2e.sh -run '^TestNeighbor' -neighbors=true

.PHONY: e2e-presets
e2e-presets: build kerf-scheduler ## Install with each preset on a simulated node of its system, as e2e does with three; needs root
	@cd test/e2e/node/openshift && go mod tidy -diff
	hack/e2e.sh -run '^TestPresets$$' -presets=kubeadm,k3s,rke2,microk8s,k0s,talos,cos,flatcar,eks-al2023,bottlerocket,openshift

.PHONY: e2e-release
e2e-release: build kerf-scheduler ## Make the files of a release, and install them on a node as e2e's without a registry; needs root
	@$(MAKE) -s release RELEASE=.cache/e2e-release VERSION=v0.1.0 REGISTRY=registry.example/kerf
	hack/e2e.sh -run '^TestAirGapped$$' '-release=$(CURDIR)/.cache/e2e-release/v0.1.0'

.PHONY: e2e-upgrade
e2e-upgrade: build kerf-scheduler ## Upgrade from the Kerf of commit FROM to this one and back while pods run, on a node as e2e's; needs root (builds that one, too)
	hack/e2e-upgrade.sh '$(FROM)'

.PHONY: e2e-versions
e2e-versions: build kerf-scheduler ## Run the tests that each supported version must pass (VERSIONS="1.32.9 containerd-1.7.35": only these); needs root, and builds each once
	hack/e2e-versions.sh $(VERSIONS)

.PHONY: walk
walk: build kerf-scheduler ## Type the quick start and the tutorial on three nodes of a simulated cluster: install, use, change, upgrade, remove; needs root
	cd test/e2e && go test -count=1 -v -timeout 120m ./walk -walk

.PHONY: reproducible
reproducible: need ## Build what the images hold twice, in two places and from nothing, and compare; takes minutes
	hack/reproducible.sh

.PHONY: soak
soak: build kerf-scheduler $(TOOLKIT) ## The long runs: property tests (SOAK_STEPS, 10^6), the machine suite's soak, then 500 rounds of MIG and SOAK_TIME (30m; 0: neither) of random steps on a real Kubernetes
	hack/soak.sh $(SOAK_STEPS) $(SOAK_TIME) $(SOAK_SEED)

.PHONY: bench
bench: build kerf-scheduler ## Benchmarks (BENCH=regexp), then on a real Kubernetes, ROUNDS times: PODS (110; 0: none) pods at once, MIG_PODS (40, none without PODS) pods with MIG instances, and both schedulers on NODES (1000; 0: none) hollow nodes; needs root
	hack/record.sh hack/bench.sh '$(BENCH)' $(PODS) $(ROUNDS) $(NODES) $(BOUND) $(MIG_PODS)

.PHONY: figures
figures: build ## What caps and shares of GPU time cost and hold to, in some ten minutes; run it alone; needs root
	hack/record.sh hack/figures.sh

.PHONY: kills
kills: need ## Kill programs that count their memory at random moments, KILLS (10^5) in all; goes on where it was stopped
	hack/kills.sh $(KILLS)

.PHONY: bench-placement
bench-placement: build ## Fill the clusters of TRACES=dir (openb CSV lists) with the policies kerf, fgd, bestfit, dra-kerf and dra-firstfit
	hack/record.sh hack/bench-placement.sh bin/kerf-lab '$(TRACES)'

.PHONY: bench-console
bench-console: ## Measure CPU and memory of the console with 5,000 nodes and 50 viewers, then frames in Chromium
	hack/record.sh hack/bench-console.sh
	hack/record.sh hack/console-browser.sh -run '^TestFrameTime$$'

.PHONY: matrix
matrix: build $(TOOLKIT) ## Every way to get memory and every attack against every backend; writes docs/reference/enforcement.md; needs root
	go test -count=1 -timeout 60m -run '^TestMatrix$$' ./test/machine -matrix '$(CURDIR)/docs/reference/enforcement.md'

.PHONY: userland
userland: build nvidia-tools ## Run NVIDIA's CUDA runtime and programs of others from Debian, without Kerf and at each level, and print a table; needs root
	@hack/userland.sh
	@go test -count=1 -timeout 60m -run '^TestUserland(Random)?$$' ./test/machine -patience 5m -userland '$(CURDIR)/.cache/userland' \
		-userland-table '$(CURDIR)/.cache/userland/table.md' -userland-page '$(CURDIR)/docs/reference/userland.md' || { cat '$(CURDIR)/.cache/userland/table.md'; exit 1; }
	@cat '$(CURDIR)/.cache/userland/table.md'

.PHONY: userland-pods
userland-pods: build kerf-scheduler ## Run programs of others from Debian in pods with a cap, on a node as e2e's; needs root
	@hack/userland.sh
	@go test -count=1 -timeout 60m -run '^TestUserland$$' ./test/machine -patience 5m -userland '$(CURDIR)/.cache/userland' \
		-userland-rows '^CUDA sample deviceQuery$$'
	hack/e2e.sh -run '^TestUserlandInPods$$' -userland '$(CURDIR)/.cache/userland'

.PHONY: nvidia-tools
nvidia-tools: build $(TOOLKIT) ## Run NVIDIA's Go programs, unpatched, on the simulator's files of a driver, and print a table; needs root
	@$(MAKE) '$(DEVICE_PLUGIN)' || rm -f '$(DEVICE_PLUGIN)' # without it, the table says so
	@$(MAKE) '$(DRA_DRIVER)' || rm -f '$(DRA_DRIVER)'
	@mkdir -p .cache/userland-tools
	@go test -count=1 -timeout 10m -run '^TestNVIDIATools$$' ./test/machine -nvidia-tools '$(CURDIR)/.cache/bin' \
		-nvidia-tools-table '$(CURDIR)/.cache/userland-tools/table.md' \
		-userland-page '$(CURDIR)/docs/reference/userland.md'
	@cat '$(CURDIR)/.cache/userland-tools/table.md'

.PHONY: hardware-kit
hardware-kit: build ## Pack bin/hardware-kit.tar.xz, which measures Kerf on a machine with a GPU in nine minutes (docs/reference/hardware-kit.md)
	@VERSION='$(VERSION)' hack/hardware-kit.sh bin bin/hardware-kit.tar.xz

.PHONY: attacks
attacks: build ## Run hostile programs against both drivers (docs/reference/attacks.md), in some five minutes; needs root
	@hack/attacks.sh

.PHONY: attacks-short
attacks-short: build ## The part of the attacks that CI runs, in two minutes; needs root
	@hack/attacks.sh short

.PHONY: nightly-guest
nightly-guest: build ## Jobs held by each backend while systemd reloads, restarts and changes units, in an emulated machine with Debian's kernel; five minutes; needs no root
	@hack/nightly-guest.sh

.PHONY: console-browser
console-browser: need ## Run the console's views in Chromium with axe-core, and write a picture of each into .cache/console (first time: downloads Chromium)
	hack/console-browser.sh -skip '^TestFrameTime$$'

.PHONY: demo
demo: build ## Show the main job on this machine: on simulated H100 nodes with drivers r615 and r580 (DRIVER names one), or with the driver that is here
	hack/demo.sh

##@ Check

.PHONY: verify
verify: verify-format verify-tree verify-prose verify-shell verify-tidy verify-generated verify-layers verify-linked verify-monitoring verify-workflows vet lint ## Everything that a change must pass in addition to the tests
	@echo 'verify: ok'

.PHONY: verify-format
verify-format: need
	@echo '--- gofmt'
	@hack/gofmt.sh

.PHONY: verify-tree
verify-tree: need
	@echo '--- licence headers, file sizes, columns, links in documents, paths of one machine'
	@cd tools && go run ./treecheck ..

.PHONY: verify-prose
verify-prose: need $(VALE)
	@echo '--- prose of README, CONTRIBUTING and docs'
	@hack/prose.sh '$(VALE)' error
	@echo '--- prose of comments and strings in Go files'
	@cd tools && go run ./goprose '$(VALE)' vale/styles ..

.PHONY: prose-update
prose-update: $(VALE) ## Lower the numbers of findings that Go files may still have (tools/goprose/testdata/allowed.txt)
	@cd tools && go run ./goprose '$(VALE)' vale/styles .. -update

.PHONY: prose
prose: $(VALE) ## Check the prose of README, CONTRIBUTING and docs with Vale, and print its warnings
	@hack/prose.sh '$(VALE)' warning

.PHONY: verify-shell
verify-shell:
	@echo '--- shell scripts'
	@hack/shellcheck.sh

.PHONY: verify-tidy
verify-tidy: need
	@echo '--- go.mod and go.sum'
	@for module in $$(find . -path ./.cache -prune -o -name go.mod -printf '%h\n' | sort); do \
		(cd $$module && go mod tidy -diff) || { echo "$$module/go.mod is not tidy: run 'go mod tidy' there" >&2; exit 1; }; \
	done

.PHONY: verify-generated
verify-generated: need tools
	@echo '--- generated files'
	@hack/protos.sh --check . $(PROTOS)
	@go test -count=1 -run '^TestCurrent$$' ./sharing/config/reference
	@cd tools/chart && $(AS_SCHEDULER) go run . --check ../../deploy
	@go test -count=1 -run '^(TestReference|TestCommandsInDocuments)$$' ./internal/cli
	@cd tools && go run ./reference --check ..
	@cd tools && go run ./picture --check ../docs/picture.txt ../docs/picture.svg
	@cd tools && go run ./benchpages --check ../docs/benchmarks
	@cd tools && go run ./console --check ..

.PHONY: verify-layers
verify-layers: need
	@echo '--- import layers'
	@go test -count=1 ./test/layers

.PHONY: verify-linked
verify-linked: build
	@echo '--- what the linker keeps'
	@for p in kerf-agent kerf-monitor kerf-console; do \
		if go tool nm bin/$$p | grep ' text/template.(\*Template).Execute$$' >/dev/null; then \
			echo "$$p can execute templates, so that the linker keeps every method of every type; 'go build -ldflags=-dumpdep' tells who does" >&2; \
			exit 1; \
		fi; \
	done

.PHONY: verify-monitoring
verify-monitoring: need
	@echo '--- rules and dashboards'
	@hack/promtool.sh '$(PROMTOOL)'
	@hack/verify-monitoring.sh '$(PROMTOOL)'

.PHONY: verify-workflows
verify-workflows: need $(ACTIONLINT)
	@echo '--- GitHub workflows'
	@$(ACTIONLINT) .github/workflows/*.yml

.PHONY: vet
vet: need
	@echo '--- warnings of the C compiler'
	@mkdir -p .cache/werror
	@$(MAKE) -s -C sim/lib OUT='$(CURDIR)/.cache/werror' GPULOAD='$(CURDIR)/.cache/werror/gpuload' CC='$(CC)' WERROR=-Werror all gpuload
	@$(MAKE) -s -C internal/libkerf/lib OUT='$(CURDIR)/.cache/werror' OBJ='$(CURDIR)/.cache/werror/.libkerf' SIM='$(CURDIR)/.cache/werror/r580' CC='$(CC)' WERROR=-Werror all checks
	@echo '--- go vet'
	@go vet ./...
	@cd tools && go vet ./...
	@cd test/e2e && go vet ./...
	@cd scheduler && $(AS_SCHEDULER) go vet ./...
	@cd nomad && $(AS_SCHEDULER) go vet ./...
	@cd tools/chart && $(AS_SCHEDULER) go vet ./...
	@cd tools/release && go vet ./...

.PHONY: lint
lint: need $(LINTER) ## Run golangci-lint (built once, from tools/lint)
	@echo '--- golangci-lint'
	@$(LINTER) run ./...
	@cd tools && $(LINTER) run --config ../.golangci.yml ./...
	@cd test/e2e && $(LINTER) run --config ../../.golangci.yml ./...
	@cd scheduler && $(AS_SCHEDULER) $(LINTER) run --config ../.golangci.yml ./...
	@cd nomad && $(AS_SCHEDULER) $(LINTER) run --config ../.golangci.yml ./...
	@cd tools/chart && $(AS_SCHEDULER) $(LINTER) run --config ../../.golangci.yml ./...
	@cd tools/release && $(LINTER) run --config ../../.golangci.yml ./...

.PHONY: vulncheck
vulncheck: need $(VULNCHECK) ## Compare what is called with Go's vulnerability database; says so if it cannot be reached
	@hack/vulncheck.sh '$(VULNCHECK)'

.PHONY: gate
gate: ## Everything before a release, to the last, with one table at the end; hours, alone on the machine; needs root
	@hack/gate.sh $(GATES)

##@ Help

.PHONY: help
help: ## Show this text
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Behind the targets above.

.PHONY: kerf-hook
kerf-hook:
	CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags '-X main.version=$(VERSION) -buildid=' -o '$(HOOK_OUT)' ./cmd/kerf-hook

.PHONY: release-agent
release-agent: need
	@mkdir -p '$(RELEASE)'
	$(RELEASE_BUILD) -o '$(RELEASE)/' ./cmd/kerf-agent ./cmd/kerf-monitor ./cmd/kerf-console ./cmd/kerf
	@$(MAKE) kerf-hook HOOK_OUT='$(RELEASE)/kerf-hook'
	@$(MAKE) -s -C internal/libkerf/lib OUT='$(abspath $(RELEASE))' OBJ='$(abspath $(RELEASE))/.libkerf' CC='$(CC)' CFLAGS='$(CFLAGS) -ffile-prefix-map=$(CURDIR)=.' all

.PHONY: release-scheduler
release-scheduler: need
	@mkdir -p '$(RELEASE)'
	cd scheduler && $(AS_SCHEDULER) go build -buildvcs=false -ldflags '$(SCHEDULER_FLAGS)' -o '$(abspath $(RELEASE))/kerf-scheduler' .

.PHONY: release-arm64
release-arm64: cross
	@$(MAKE) release-agent release-scheduler RELEASE='$(RELEASE)/arm64' $(ARM64)

.PHONY: release-arguments
release-arguments:
	@[[ '$(VERSION)' == v[0-9]*.*.* && -n '$(REGISTRY)' ]] || \
		{ echo 'release: write make release VERSION=v1.2.3 REGISTRY=registry.example/kerf' >&2; exit 1; }

.PHONY: release-cli
release-cli: need
	@for platform in $(CLI_PLATFORMS); do \
		os=$${platform%/*} arch=$${platform#*/}; ending=; [ $$os != windows ] || ending=.exe; \
		CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch $(RELEASE_BUILD) -o "$(RELEASE)/cli/$$os-$$arch/kubectl-kerf$$ending" ./cmd/kubectl-kerf; \
	done

.PHONY: need
need:
	@CC='$(CC)' hack/need.sh

.PHONY: cross
cross:
	@hack/cross.sh '$(CROSS)'

.PHONY: tools
tools: need
	@mkdir -p $(TOOLS)
	@cd tools && go build -buildvcs=false -o $(TOOLS)/ ./protogen $(PROTOC_PLUGINS)

.PHONY: toolkit
toolkit: $(TOOLKIT) $(RUNC) $(MIG_PARTED)

$(RUNC): test/e2e/node/runc/go.mod test/e2e/node/runc/go.sum
	@echo "building runc for the tests, once"
	@mkdir -p $(@D)
	cd test/e2e/node/runc && CGO_ENABLED=1 go build -buildvcs=false -tags 'urfave_cli_no_docs netgo osusergo' \
		-o $@ github.com/opencontainers/runc
	@touch $@

$(MIG_PARTED): tools/migparted/go.mod tools/migparted/go.sum
	@echo "building NVIDIA's mig-parted for the tests, once"
	@mkdir -p $(@D)
	cd tools/migparted && CGO_ENABLED=1 go build -buildvcs=false -ldflags '-extldflags=-Wl,-z,lazy' -o $@ \
		github.com/NVIDIA/mig-parted/cmd/nvidia-mig-parted
	@touch $@

$(DEVICE_PLUGIN): tools/k8sdeviceplugin/go.mod tools/k8sdeviceplugin/go.sum
	@echo "building NVIDIA's device plugin for the tests, once"
	@mkdir -p $(@D)
	cd tools/k8sdeviceplugin && CGO_ENABLED=1 go build -buildvcs=false -ldflags '-extldflags=-Wl,-z,lazy' -o $(@D)/ \
		github.com/NVIDIA/k8s-device-plugin/cmd/gpu-feature-discovery \
		github.com/NVIDIA/k8s-device-plugin/cmd/mps-control-daemon \
		github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin
	@touch $@

$(DRA_DRIVER): tools/dradriver/go.mod tools/dradriver/go.sum
	@echo "building NVIDIA's DRA driver for the tests, once"
	@mkdir -p $(@D)
	cd tools/dradriver && CGO_ENABLED=1 go build -buildvcs=false -ldflags '-extldflags=-Wl,-z,lazy' -o $@ \
		sigs.k8s.io/dra-driver-nvidia-gpu/cmd/gpu-kubelet-plugin
	@touch $@

# Nomad's executor needs cgo.
$(NOMAD): tools/nomad/go.mod tools/nomad/go.sum
	@echo "building Nomad for the tests, once; this takes many minutes"
	@mkdir -p $(@D)
	cd tools/nomad && CGO_ENABLED=1 go build -buildvcs=false -trimpath -ldflags '-s -w' -o $@ github.com/hashicorp/nomad
	@touch $@

$(TOOLKIT): tools/nvidiatoolkit/go.mod tools/nvidiatoolkit/go.sum
	@echo "building NVIDIA's container toolkit for the tests, once"
	@mkdir -p $(@D)
	cd tools/nvidiatoolkit && CGO_ENABLED=1 go build -buildvcs=false -ldflags '-extldflags=-Wl,-z,lazy' -o $(@D)/ \
		github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk
	@touch $@

$(LINTER): tools/lint/go.mod tools/lint/go.sum
	@echo 'building golangci-lint, once; this takes some minutes'
	@mkdir -p $(@D)
	cd tools/lint && CGO_ENABLED=0 go build -buildvcs=false -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(VALE): tools/vale/go.mod tools/vale/go.sum
	@hack/need.sh c++
	@echo 'building Vale, once; this takes a minute'
	@mkdir -p $(@D)
	cd tools/vale && CGO_ENABLED=1 go build -buildvcs=false -o $@ github.com/errata-ai/vale/v3/cmd/vale
	@touch $@

$(VULNCHECK): tools/vulncheck/go.mod tools/vulncheck/go.sum
	@echo 'building govulncheck, once'
	@mkdir -p $(@D)
	cd tools/vulncheck && CGO_ENABLED=0 go build -buildvcs=false -o $@ golang.org/x/vuln/cmd/govulncheck
	@touch $@

$(ACTIONLINT): tools/actionlint/go.mod tools/actionlint/go.sum
	@echo 'building actionlint, once'
	@mkdir -p $(@D)
	cd tools/actionlint && CGO_ENABLED=0 go build -buildvcs=false -o $@ github.com/rhysd/actionlint/cmd/actionlint
	@touch $@
