package nodecert

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/polylet/polylet/internal/fsatomic"
)

// Prepare makes --cert-dir and gives it to the user who asks for certificates and has
// to write them; uid below 0 leaves it as it is. Root reads and writes there all the
// same, a kubelet that comes back too. A directory with anything else in it is refused:
// that user could exchange it. So is one in which a file or directory of others belongs,
// which may not be there yet, or through which it is found; an empty name is none.
func Prepare(dir string, uid int, others ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make --cert-dir: %w", err)
	}
	if uid < 0 {
		return nil
	}
	for _, file := range others {
		if file != "" && liesBelow(dir, file) {
			return fmt.Errorf("%s lies in --cert-dir %s, which is to be given to the user of nodestatus, who could exchange it and with it say what this node obeys: "+
				"name a directory of its own, /var/lib/kubelet/pki say", file, dir)
		}
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("look at --cert-dir: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("--cert-dir %s is a link: name the directory itself, whose owner changes", dir)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && int(owner.Uid) == uid && info.Mode().Perm()&0o700 == 0o700 {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look at --cert-dir: %w", err)
	}
	for _, e := range entries {
		if !oursName(e.Name()) {
			return fmt.Errorf("--cert-dir %s has other things than a kubelet's certificates in it (%s), and is to be given to the user of nodestatus, who could exchange them: "+
				"name a directory of its own, /var/lib/kubelet/pki say", dir, e.Name())
		}
	}
	if err := os.Chmod(dir, info.Mode().Perm()|0o700); err != nil {
		return fmt.Errorf("let nodestatus write to --cert-dir: %w", err)
	}
	if err := os.Chown(dir, uid, -1); err != nil {
		return fmt.Errorf("let nodestatus write to --cert-dir: %w", err)
	}
	return nil
}

// mostLinks is how many links in a row are followed, as the kernel does.
const mostLinks = 40

// liesBelow says whether a file is found in a directory or below it, or is that itself,
// wherever links lead from there: who has the directory can lead them elsewhere. What is
// not there yet counts as no link.
func liesBelow(dir, file string) bool {
	root, at := unlinked(dir), "/"
	if !filepath.IsAbs(file) {
		if here, err := os.Getwd(); err == nil {
			at = here
		}
	}
	names := strings.Split(file, "/")
	for links := 0; len(names) > 0; {
		name := names[0]
		names = names[1:]
		if name == ".." {
			at = filepath.Dir(at)
			continue
		}
		if name == "" || name == "." {
			continue
		}
		if isWithin(root, at) {
			return true
		}
		next := filepath.Join(at, name)
		target, err := os.Readlink(next)
		if err != nil {
			at = next
			continue
		}
		if links++; links > mostLinks {
			return false
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		names = append(strings.Split(target, "/"), names...)
	}
	return isWithin(root, at)
}

// isWithin says whether a path without links is a directory's or leads below it.
func isWithin(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// unlinked is a directory without links, as far as it is there.
func unlinked(dir string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return dir
	}
	if resolved, err := filepath.EvalSymlinks(abs); err == nil {
		return resolved
	}
	if parent := filepath.Dir(abs); parent != abs {
		return filepath.Join(unlinked(parent), filepath.Base(abs))
	}
	return abs
}

// oursName says whether a file is one of those that a kubelet or this node keeps there.
func oursName(name string) bool {
	if hidden, ok := strings.CutPrefix(name, "."); ok { // of a write that was cut short
		name, _, _ = strings.Cut(hidden, fsatomic.TemporaryMark)
	}
	if fsatomic.IsAside(name) || name == "kubelet.crt" || name == "kubelet.key" {
		return true
	}
	for _, prefix := range []string{Client, Serving} {
		rest, ours := strings.CutPrefix(name, prefix)
		if !ours {
			continue
		}
		switch rest {
		case "-current.pem", "-updated.pem", ".key.tmp", ".crt", ".key":
			return true
		}
		date, is := strings.CutSuffix(strings.TrimPrefix(rest, "-"), ".pem")
		if _, err := time.Parse(dated, date); is && err == nil {
			return true
		}
	}
	return false
}
