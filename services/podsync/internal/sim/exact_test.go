package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// What a seed replays exactly is built with a few changes to Go's own runtime and
// library, which leave nothing to chance or to the speed of the machine. Only these
// are kept here; the changed files are made from the Go that builds (go help build,
// -overlay), and one that reads otherwise than it did is an error.

// edit replaces a text that a file has once; an empty one is its end.
type edit struct{ old, new string }

// edits are the changes by file, below GOROOT/src.
var edits = map[string][]edit{
	// Random numbers: those of a bubble begin with the seed and are drawn by nobody
	// else; those outside of it begin with the same number in each process, as does
	// what hashes and the place of the heap are made from.
	"runtime/synctest.go": {
		{"\tgp.bubble = bubble\n", "\tgp.bubble = bubble; randomInside = seedOfBubbles; gp.m.p.ptr().schedtick = 0\n"},
		{"", `
var seedOfBubbles, randomInside, randomOutside uint64

// nextRandom is a splitmix64 generator.
//
//go:nosplit
//go:noinline
func nextRandom(b *synctestBubble) uint64 {
	x := &randomOutside
	if b != nil {
		x = &randomInside
	}
	*x += 0x9e3779b97f4a7c15
	z := *x
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
`},
	},
	"runtime/rand.go": {
		{"seed[i%len(seed)] ^= c\n", "_ = c; seed[i%len(seed)] ^= byte(i + 1)\n"},
		{"func rand() uint64 {\n", "func rand() uint64 { if true { return nextRandom(getg().bubble) }\n"},
	},
	// The seed comes when the process has begun, as a copy of one (nursery_test.go). Of
	// that one's threads it has but this.
	"runtime/runtime.go": {{
		"func syscall_runtimeSetenv(key, value string) {\n",
		`func syscall_runtimeSetenv(key, value string) {
	if key == "` + exactSeed + `" {
		if sched.lock.key != 0 {
			throw("copied while a thread was on its way to sleep")
		}
		sched.midle.obj, sched.nmidle = 0, 0
		hugeHeap = true
		for _, arena := range mheap_.heapArenas {
			sysHugePageOS(unsafe.Pointer(arenaBase(arena)), heapArenaBytes)
		}
		seedOfBubbles = 0
		for _, digit := range value {
			seedOfBubbles = 10*seedOfBubbles + uint64(digit-'0')
		}
	}
`,
	}},
	// Which case of a select.
	"runtime/select.go": {{"j := cheaprandn(uint32(norder + 1))", "j := uint32(nextRandom(getg().bubble) % uint64(norder+1))"}},
	// Which of two timers of one instant.
	"runtime/time.go": {{"t.rand = cheaprand()", "t.rand = uint32(nextRandom(getg().bubble))"}},
	// Which goroutine goes next: nobody takes the processor from one that runs for
	// long or is in a system call, and of those that can run it is the last that became
	// able to, or the first, as the seed says.
	"runtime/proc.go": {
		{`const haveSysmon = GOARCH != "wasm"`, `const haveSysmon = false`},
		{"newg = malg(stackMin)", "newg = malg(int32(startingStackSize))"},
		{"if !haveSysmon && next {", "if next && gp.bubble != nil && nextRandom(gp.bubble)&1 == 0 {"},
	},
	// Which child of a context ends first: the eldest, wherever it lies in memory.
	"context/context.go": {
		{"\tchildren map[canceler]struct{} ", "\tchildren map[canceler]uint64 "},
		{"p.children = make(map[canceler]struct{})", "p.children = make(map[canceler]uint64)"},
		{"p.children[child] = struct{}{}", "p.children[child] = born.Add(1)"},
		{"for child := range c.children {", "for _, child := range eldestFirst(c.children) {"},
		{"\t\"sync\"\n", "\t\"slices\"; \"sync\"\n"},
		{"", `
var born atomic.Uint64

func eldestFirst(children map[canceler]uint64) []canceler {
	all := make([]canceler, 0, len(children))
	for child := range children {
		all = append(all, child)
	}
	slices.SortFunc(all, func(a, b canceler) int { return int(children[a]) - int(children[b]) })
	return all
}
`},
	},
	// How long one waited for a mutex, which is handed over after a millisecond.
	"runtime/sema.go": {{"func internal_sync_nanotime() int64 {\n", "func internal_sync_nanotime() int64 { if b := getg().bubble; b != nil { return b.now }\n"}},
	// Not for exactness, but for speed. A stack need not grow in most goroutines, which
	// the collector would find out.
	"runtime/stack.go": {{"var startingStackSize uint32 = fixedStack", "var startingStackSize uint32 = 16 << 10"}},
	// Nor for exactness: what a child allocates comes in pages of two megabytes, not in
	// thousands of small ones, each of which the kernel would be asked for. What it has
	// of its mother stays in small ones: of these it writes a part, which is copied.
	"runtime/mem_linux.go": {
		{"\tif debug.disablethp != 0 {\n", "\tif hugeHeap {\n\t\tsysHugePageOS(v, n)\n\t}\n\tif debug.disablethp != 0 {\n"},
		{"", "\nvar hugeHeap bool\n"},
	},
}

// overlay writes the changed files to a directory, and returns what tells
// go build of them.
func overlay(ctx context.Context, dir string) (file string, err error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	replace := map[string]string{}
	for name, edits := range edits {
		path := filepath.Join(strings.TrimSpace(string(root)), "src", name)
		b, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("read Go's own source (%s): %w", runtime.Version(), err)
		}
		text := string(b)
		for _, e := range edits {
			if e.old == "" {
				text += e.new
				continue
			}
			if n := strings.Count(text, e.old); n != 1 {
				return "", fmt.Errorf("%s of %s has %d times what it should have once; see how the simulation's edit is to be made there:\n%s", path, runtime.Version(), n, e.old)
			}
			text = strings.Replace(text, e.old, e.new, 1)
		}
		to := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[path] = to
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, b, 0o644)
}

// buildExact builds this test such that a seed replays exactly, and returns the
// program.
func buildExact(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../../../.cache/sim")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file, err := overlay(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "exact.test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", file, "-o", program, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // C's library does not let a process be copied
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the simulation with the changed runtime of %s: %v\n%s", runtime.Version(), err, out)
	}
	return program
}
