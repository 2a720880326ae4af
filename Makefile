# The project's commands. `make help` lists them.

.DEFAULT_GOAL := help
.PHONY: help setup build book release install uninstall deb deb-test rpm demo test lint fmt bench clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what this machine lacks (Debian packages, Rust components)
	@scripts/setup

build: ## build the program: target/debug/iogate
	cargo build --locked --workspace

release: ## build the program and the libraries optimised: target/release (PGO=1: by profiles of runs, takes twice as long)
	@scripts/install --build

install: ## install program, libraries, headers, man pages and completions (PREFIX=/usr/local DESTDIR= LIBDIR=PREFIX/lib)
	@scripts/install

uninstall: ## remove what make install has put there (the same PREFIX and DESTDIR)
	@scripts/install --remove

deb: ## build Debian packages: target/packages (REVISION=1, MAINTAINER="NAME <ADDRESS>")
	@scripts/package deb

deb-test: ## try them as users get them, in a fresh Debian: root, debootstrap, lintian, rpmlint, network
	@scripts/package-test

rpm: ## build packages for RPM: target/packages (REVISION=1)
	@scripts/package rpm

demo: build ## competing programs on a modelled disk, without and with scheduling: a table and an HTML report
	target/debug/iogate demo --html target/iogate-demo.html

test: ## everything that CI runs
	@scripts/setup
	@scripts/check

lint: ## formatting, clippy, shellcheck; layers, licences, sizes of files and all else that `cargo xtask tidy` looks at
	@scripts/check rustfmt clippy shellcheck tidy

fmt: ## format the Rust code
	cargo fmt --all

book: ## the handbook, docs/ as a book: target/book/index.html
	@scripts/book

bench: ## all benchmarks; results in target/bench
	@scripts/setup bench
	@bench/run

clean: ## remove everything that was built
	cargo clean
