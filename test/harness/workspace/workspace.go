// Package workspace finds the repository and the directories that tests and the
// development commands use outside it. It must never create anything itself.
package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// DefaultCache is where built peers are kept when POLYLET_CACHE is not set.
const DefaultCache = "/var/cache/polylet"

// DefaultInstances holds one directory per test instance when POLYLET_INSTANCES
// is not set. It is short because Unix socket paths end at 107 bytes, and on a
// disk because overlayfs needs one.
const DefaultInstances = "/var/tmp/polylet"

// Root returns the repository's root: the first directory with a go.work, going
// up from the working directory.
func Root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository root: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		_, err := os.Stat(filepath.Join(dir, "go.work"))
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("find the repository root: %w", err)
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the repository root: no go.work above %s; run this inside a checkout of polylet", start)
		}
	}
}

// Cache returns the directory for things worth keeping between runs.
func Cache() string {
	if dir := os.Getenv("POLYLET_CACHE"); dir != "" {
		return dir
	}
	return DefaultCache
}

// Instances returns the directory under which every instance has its own.
func Instances() string {
	if dir := os.Getenv("POLYLET_INSTANCES"); dir != "" {
		return dir
	}
	return DefaultInstances
}

// BuiltVariable names a directory with the programs of this checkout that tests want,
// built by whoever starts the tests, as `make node` does: once, and not by each.
const BuiltVariable = "POLYLET_BUILT"

// Built returns where a program of this checkout is built already; empty when each
// test builds its own, so that it is of the sources as they are.
func Built(name string) string {
	dir := os.Getenv(BuiltVariable)
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, name)
}
