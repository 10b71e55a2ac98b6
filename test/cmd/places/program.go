package main

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// listWithin bounds how long a program may take to say which tests it has.
const listWithin = time.Minute

// program is a test program as go test calls it.
type program struct {
	path string
	args []string // without the pattern and the time limit
	// top is the pattern of the tests, and below that of their parts with its slash.
	top, below string
	within     time.Duration // for all together; zero is no limit
	whole      bool          // it is asked for something that only makes sense as a whole
	says       bool          // each test says how it ended, passed or not
}

func parse(argv []string) (*program, error) {
	p := &program{path: argv[0], top: "."}
	for _, arg := range argv[1:] {
		name, value, ok := strings.Cut(arg, "=")
		if !ok && (name == "-test.run" || name == "-test.timeout") {
			return nil, fmt.Errorf("write %s=VALUE, as go test does", name)
		}
		switch name {
		case "-test.run":
			p.top, p.below = cmp.Or(value, "."), ""
			if at := strings.IndexByte(value, '/'); at >= 0 {
				p.top, p.below = cmp.Or(value[:at], "."), value[at:]
				// In A|B/part, go test takes all parts of A.
				p.whole = p.whole || strings.ContainsAny(value, "|[(")
			}
			continue
		case "-test.timeout":
			var err error
			if p.within, err = time.ParseDuration(value); err != nil {
				return nil, err
			}
			continue
		case "-test.v":
			p.says = !ok || value != "false"
		case "-test.skip", "-test.list", "-test.bench", "-test.fuzz", "-test.coverprofile", "-test.cpuprofile", "-test.memprofile", "-test.trace":
			p.whole = true
		}
		p.args = append(p.args, arg)
	}
	return p, nil
}

// list returns the tests that the pattern picks, in the order of the sources; a fuzz
// test's seeds are tests, too.
func (p *program) list(ctx context.Context, pattern string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	out, err := exec.CommandContext(ctx, p.path, "-test.list="+pattern).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w: %s", p.path, err, out)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool {
		return !strings.HasPrefix(name, "Test") && !strings.HasPrefix(name, "Example") && !strings.HasPrefix(name, "Fuzz")
	}), nil
}

// only are the arguments that run one test, which may take what is left of the time.
func (p *program) only(name string, left time.Duration) []string {
	args := append(slices.Clone(p.args), "-test.run=^"+name+"$"+p.below)
	if p.within > 0 {
		args = append(args, "-test.timeout="+left.String())
	}
	return args
}
