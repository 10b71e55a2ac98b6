package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// hierarchy is one mounted cgroup hierarchy.
type hierarchy struct {
	// point is where it is mounted.
	point string
	// kind is cgroup or cgroup2.
	kind string
	// data are the options that mount it again; empty for cgroup2.
	data string
}

// readHierarchies finds the cgroup hierarchies in the text of a mountinfo file.
func readHierarchies(mountinfo io.Reader) ([]hierarchy, error) {
	var found []hierarchy
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 || !strings.HasPrefix(right[0], "cgroup") {
			continue
		}
		h := hierarchy{point: left[4], kind: right[0]}
		if h.kind == "cgroup" {
			h.data = mountData(right[2])
		}
		found = append(found, h)
	}
	return found, lines.Err()
}

// mountData leaves of a hierarchy's options those that name it.
func mountData(options string) string {
	var kept []string
	for _, option := range strings.Split(options, ",") {
		if option == "rw" || option == "ro" || option == "xattr" || strings.HasPrefix(option, "release_agent=") {
			continue
		}
		if strings.HasPrefix(option, "name=") {
			kept = append(kept, "none")
		}
		kept = append(kept, option)
	}
	return strings.Join(kept, ",")
}

func hierarchies() ([]hierarchy, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list the cgroup hierarchies: %w", err)
	}
	defer f.Close()
	return readHierarchies(f)
}

// joinCgroup moves this process into a cgroup of every hierarchy, which is made
// when it is not there.
func joinCgroup(name string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		dir := filepath.Join(h.point, name)
		if err := makeCgroup(h, dir); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("move into cgroup %s: %w", dir, err)
		}
	}
	return nil
}

func makeCgroup(h hierarchy, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make cgroup %s: %w", dir, err)
	}
	if !slices.Contains(strings.Split(h.data, ","), "cpuset") {
		return nil
	}
	// A new cpuset is empty, and nothing can enter it; its parents come first.
	below, err := filepath.Rel(h.point, dir)
	if err != nil {
		return err
	}
	at := h.point
	for _, step := range strings.Split(below, "/") {
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if err := inherit(filepath.Join(at, file), filepath.Join(at, step, file)); err != nil {
				return err
			}
		}
		at = filepath.Join(at, step)
	}
	return nil
}

func inherit(from, to string) error {
	has, err := os.ReadFile(to)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if strings.TrimSpace(string(has)) != "" {
		return nil
	}
	value, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.WriteFile(to, value, 0); err != nil {
		return fmt.Errorf("give cgroup %s its processors and memory: %w", filepath.Dir(to), err)
	}
	return nil
}
