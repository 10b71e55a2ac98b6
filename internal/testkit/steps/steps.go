// Package steps counts how often each block of code is run, to find what searches among
// all of something for each of it. No clock is read: a count is the same on any machine.
//
// It owns the counting. It must never be used by what ships.
package steps

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// few and many are how much of something there is in the two runs that are compared.
const few, many = 40, 400

// sizeEnv tells a run of the test that counts how much there is to be of it.
const sizeEnv = "POLYLET_STEPS_OF"

// most is how many times as many steps a block may take for ten times as much. Sorting
// takes half as many again; a search for each among all takes ten times as many again.
const most = 25

// Grow fails the test when a block of code of its module is run far more than ten times as
// often by do(400) as by do(40). What is run for many alone is not told apart. The test
// is built and run anew for that, with its blocks counted, and may do nothing else.
func Grow(t *testing.T, do func(n int)) {
	t.Helper()
	for _, grown := range Grown(t, do) {
		t.Error(grown)
	}
}

// Grown says which blocks Grow fails for.
func Grown(t *testing.T, do func(n int)) []string {
	t.Helper()
	if n, err := strconv.Atoi(os.Getenv(sizeEnv)); err == nil {
		do(n)
		t.SkipNow() // it was counted
	}
	module, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Module.Path}}", ".").Output()
	if err != nil {
		t.Fatalf("find the test's module: %v", err)
	}
	program := filepath.Join(t.TempDir(), "steps.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-covermode=count",
		"-coverpkg="+strings.TrimSpace(string(module))+"/...", "-o", program, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the test with its blocks counted: %v\n%s", err, out)
	}
	less, more := count(t, program, few), count(t, program, many)
	var grown []string
	for block, n := range more {
		if less[block] > 0 && n > most*less[block] {
			grown = append(grown, fmt.Sprintf("%s is run %d times for %d and %d times for %d", block, less[block], few, n, many))
		}
	}
	slices.Sort(grown)
	return grown
}

// count is how often each block is run for so much.
func count(t *testing.T, program string, size int) map[string]int {
	t.Helper()
	profile := filepath.Join(t.TempDir(), "steps")
	run := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$", "-test.coverprofile="+profile)
	run.Env = append(os.Environ(), fmt.Sprintf("%s=%d", sizeEnv, size))
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("count the blocks for %d: %v\n%s", size, err, out)
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		t.Fatal(err)
	}
	counts, sum := map[string]int{}, 0
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line) // block, statements, times
		if len(f) != 3 {
			continue
		}
		n, _ := strconv.Atoi(f[2])
		counts[f[0]], sum = n, sum+n
	}
	if sum == 0 {
		t.Fatalf("no block was counted for %d", size)
	}
	return counts
}
