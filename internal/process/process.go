// Package process owns what a process of polylet asks of the kernel for itself:
// how late it is killed when memory runs out, and how many files it may have
// open. It must never touch another process, and never end this one: without the
// right to it, things stay as they are.
package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
)

// Config is what is asked for.
type Config struct {
	// OOMScoreAdj is the process's oom_score_adj, -1000 to 1000.
	OOMScoreAdj int
	// MaxOpenFiles is how many files it may have open; 0 leaves that alone.
	MaxOpenFiles uint64
}

// Deps stands in for the kernel in tests.
type Deps struct {
	// Self is the directory of the process; /proc/self when empty.
	Self string
	// Files reads or, with a limit, sets the number of open files; prlimit(2)
	// when nil.
	Files func(set, was *unix.Rlimit) error
}

// Apply asks for all of it, and logs what was refused. Children inherit both.
func Apply(cfg Config, log logr.Logger) { apply(cfg, Deps{}, log) }

func apply(cfg Config, deps Deps, log logr.Logger) {
	if deps.Self == "" {
		deps.Self = "/proc/self"
	}
	if deps.Files == nil {
		deps.Files = func(set, was *unix.Rlimit) error { return unix.Prlimit(0, unix.RLIMIT_NOFILE, set, was) }
	}
	if err := adjust(deps.Self, cfg.OOMScoreAdj); err != nil {
		log.V(2).Info("The score for lack of memory stays as it is; whoever starts this process may set it (OOMScoreAdjust=)", "oomScoreAdj", cfg.OOMScoreAdj, "err", err)
	}
	if err := open(deps.Files, cfg.MaxOpenFiles); err != nil {
		log.V(2).Info("The limit of open files stays as it is; whoever starts this process may set it (LimitNOFILE=)", "maxOpenFiles", cfg.MaxOpenFiles, "err", err)
	}
}

// adjust sets oom_score_adj. To lower it takes CAP_SYS_RESOURCE.
func adjust(self string, value int) error {
	file := filepath.Join(self, "oom_score_adj")
	now, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text := strconv.Itoa(value)
	if strings.TrimSpace(string(now)) == text {
		return nil
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil { //nolint:gosec // The file is the kernel's.
		return fmt.Errorf("it is %s: %w", strings.TrimSpace(string(now)), err)
	}
	return nil
}

// open sets the limit of open files. To raise the hard limit takes
// CAP_SYS_RESOURCE; without it, what the hard limit allows is taken.
func open(files func(set, was *unix.Rlimit) error, most uint64) error {
	if most == 0 {
		return nil
	}
	var was unix.Rlimit
	if err := files(nil, &was); err != nil {
		return err
	}
	if was.Cur == most && was.Max == most {
		return nil
	}
	err := files(&unix.Rlimit{Cur: most, Max: most}, nil)
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	if was.Cur < was.Max {
		err = errors.Join(err, files(&unix.Rlimit{Cur: was.Max, Max: was.Max}, nil))
	}
	return fmt.Errorf("it is %d: %w", was.Max, err)
}
