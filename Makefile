# What CI runs, by name. `make check` is the everyday one.
GO ?= go

.PHONY: all build check format vet staticcheck test race interop bench crash mutants docs

all: build

build: ## the one binary, static
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/ringmq ./cmd/ringmq

check: format vet staticcheck race ## format, vet, staticcheck, import rules, tests under the race detector

format:
	@out=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); if [ -n "$$out" ]; then echo "gofmt wants to change:"; echo "$$out"; exit 1; fi

vet:
	$(GO) vet ./...

staticcheck: # pinned in go.mod's tool block
	$(GO) tool staticcheck ./...

test:
	$(GO) test ./...

race: # the import rules are a test of internal/lint; it looks at files that the test cache does not see
	$(GO) test -count=1 ./internal/lint
	$(GO) test -race ./...

interop: ## Apache's Java and Go clients against Apache and ringmq; needs a JDK and Maven
	cd interop && $(GO) test -count=1 -timeout 25m ./...

bench: build ## ringmq beside Apache RocketMQ, one table with ratios under bench/results; needs a JDK and Maven
	bin/ringmq bench compare --out bench/results $(BENCHFLAGS)

crash: ## the in-memory crash suite with many seeds
	RINGMQ_CRASH_SEEDS=10000 $(GO) test ./engine ./consumequeue -run "Crash|Random" -timeout 120m

mutants: ## break what keeps messages safe, one piece at a time: each must be seen by a test
	RINGMQ_MUTANTS=1 $(GO) test ./internal/mutants -run TestMutants -count=1 -v -timeout 60m

docs: ## what is generated: docs/config.md
	$(GO) generate ./cmd/ringmq
