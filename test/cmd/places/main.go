// Command places runs the tests of a test program each in a process of its own, several
// at a time, for tests that wait most of their time:
//
//	go test -v -exec "places -n 3" ./node
//
// What a test prints is shown in one piece when it has ended. It decides which test
// runs when, and must never know what they test.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"
)

func main() {
	places := flag.Int("n", 2*runtime.NumCPU(), "how many places there are; most tests take one")
	file := flag.String("wishes", filepath.Join("testdata", "places"), "the tests that begin first, and the places of those that take several")
	watchers := flag.Int("watchers", 0, "how many inotify instances a place needs: there are fewer places where the kernel gives a user too few")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := run(ctx, room(*places, *watchers, limit(), used()), *file, flag.Args())
	if err != nil {
		fmt.Println("fatal error: places:", err) // as words that no test can have said
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, places int, file string, argv []string) (code int, err error) {
	if len(argv) == 0 || places < 1 {
		return 0, errors.New("name a test program with its arguments, and one place at least")
	}
	p, err := parse(argv)
	if err != nil {
		return 0, err
	}
	names, err := p.list(ctx, p.top)
	if err != nil {
		return 0, err
	}
	if len(names) == 0 && p.top == "." && !p.whole {
		return 0, fmt.Errorf("%s says that it has no tests", p.path)
	}
	if len(names) < 2 || p.whole {
		return 0, syscall.Exec(p.path, argv, os.Environ())
	}
	wished, err := p.wished(ctx, file)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "places-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	r := &runner{program: p, dir: dir, places: places, out: os.Stdout, began: time.Now()}
	return r.all(ctx, lineUp(names, wished))
}

// wished reads the file of wishes, which may not be there; each has to be of a test.
func (p *program) wished(ctx context.Context, file string) ([]wish, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out, err := wishes(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	names, err := p.list(ctx, ".")
	if err != nil {
		return nil, err
	}
	for _, w := range out {
		if !slices.Contains(names, w.name) {
			return nil, fmt.Errorf("%s: there is no test %s", file, w.name)
		}
	}
	return out, nil
}
