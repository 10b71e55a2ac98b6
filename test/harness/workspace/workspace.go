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
