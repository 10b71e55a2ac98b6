// Command peers makes a machine ready for node tests: it builds the pinned
// programs, all of them and those of this checkout when none are named, and as root
// installs the Debian packages that are missing. It must never start any of them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/install"
	"github.com/polylet/polylet/test/harness/programs"
	"github.com/polylet/polylet/test/harness/workspace"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) error {
	if os.Geteuid() == 0 {
		if err := install.Packages(ctx, os.Stderr); err != nil {
			return err
		}
	}
	builder, err := programs.New(os.Stderr)
	if err != nil {
		return err
	}
	wanted := programs.All()
	if len(names) > 0 {
		if wanted, err = choose(names); err != nil {
			return err
		}
	}
	for _, p := range wanted {
		path, err := builder.Binary(ctx, p)
		if err != nil {
			return err
		}
		fmt.Println(path)
	}
	if len(names) > 0 {
		return nil
	}
	if err := builder.Own(ctx); err != nil {
		return err
	}
	root, err := workspace.Root()
	if err != nil {
		return err
	}
	return images.Programs(ctx, filepath.Join(root, "bin"))
}

func choose(names []string) ([]programs.Peer, error) {
	var wanted []programs.Peer
	for _, name := range names {
		found := false
		for _, p := range slices.Concat(programs.All(), programs.Conformance(), programs.NodeSuite()) {
			if p.Name == name {
				wanted, found = append(wanted, p), true
				break
			}
		}
		if !found {
			return nil, fmt.Errorf("no peer is called %q", name)
		}
	}
	return wanted, nil
}
