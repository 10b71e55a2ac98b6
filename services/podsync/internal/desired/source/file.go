package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/wake"
)

// settle is how long the path must be quiet before it is read: an editor
// makes several events of one save.
const settle = 10 * time.Millisecond

// whileWritten is when a file is looked at again that changed while it was read.
const whileWritten = 250 * time.Millisecond

// writtenWithin bounds how long the source waits, before it is ready, for files
// that are being written.
const writtenWithin = 5 * time.Second

// files follows the static pod path.
type files struct {
	sources *Sources
	feed    *feed
	decoder *decoder
	// removed holds the paths that were removed since the last reading, be they
	// there again or not.
	removed *removals
	// known holds every manifest file by path.
	known map[string]*entry
	// writing is true when a file changed while it was read, and since has when each
	// of those was first found so.
	writing bool
	since   map[string]time.Time
	// listed is true once the path was.
	listed bool
	// problem is the error of the path itself that was last logged.
	problem string
}

// runFiles follows the path; it closes read when the path was read once.
func (s *Sources) runFiles(ctx context.Context, sink Sink, read chan<- struct{}) error {
	decoder, err := newDecoder()
	if err != nil {
		return err
	}
	f := &files{sources: s, feed: s.newFeed(sink, File, "static pods"), decoder: decoder, removed: &removals{}, known: map[string]*entry{}, since: map[string]time.Time{}}
	changed := wake.New()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.notify(ctx, changed, f.removed)
	}()
	defer func() { <-done }()
	f.readFirst(ctx)
	close(read)
	s.staticReady()
	sink.Ready(File)
	again := time.NewTicker(s.cfg.FileCheckFrequency)
	defer again.Stop()
	for f.wait(ctx, again.C, changed) {
		f.read(ctx)
	}
	return nil
}

// readFirst reads the path, and again while something is being written there, which
// counts: once the source is ready, a pod that it does not have is ended.
func (f *files) readFirst(ctx context.Context) {
	f.read(ctx)
	for began := time.Now(); f.writing && time.Since(began) < writtenWithin; {
		if !sleep(ctx, whileWritten) {
			return
		}
		f.read(ctx)
	}
}

// wait returns when the path is to be read again; false: ctx is done.
func (f *files) wait(ctx context.Context, again <-chan time.Time, changed wake.Signal) bool {
	var soon <-chan time.Time
	if f.writing {
		soon = time.After(whileWritten)
	}
	select {
	case <-ctx.Done():
		return false
	case <-again:
	case <-soon:
	case <-f.sources.owners.freed[File]:
	case <-changed:
		if !sleep(ctx, settle) {
			return false
		}
		select {
		case <-changed:
		default:
		}
	}
	return true
}

// notify passes changes of the path on for as long as ctx lasts.
func (s *Sources) notify(ctx context.Context, changed wake.Signal, removed *removals) {
	log := klog.FromContext(ctx)
	tell := func() {
		changed.Set()
	}
	watch := func() error { return s.deps.Notifier.Notify(ctx, s.cfg.StaticPodPath, tell) }
	if n, ok := s.deps.Notifier.(RemovalNotifier); ok {
		watch = func() error { return n.NotifyRemoved(ctx, s.cfg.StaticPodPath, tell, removed.add) }
	}
	last := ""
	for ctx.Err() == nil {
		err := watch()
		if err != nil && err.Error() != last && ctx.Err() == nil {
			last = err.Error()
			log.Error(err, "Static pods are only looked for by time until the path can be watched again", "path", s.cfg.StaticPodPath, "every", s.cfg.FileCheckFrequency)
		}
		if !sleep(ctx, s.cfg.FileCheckFrequency) {
			return
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// read takes in what the path holds now.
func (f *files) read(ctx context.Context) {
	log := klog.FromContext(ctx)
	paths, err := list(f.sources.cfg.StaticPodPath)
	if err != nil {
		if err.Error() != f.problem {
			f.problem = err.Error()
			log.Error(err, "Static pods cannot be listed; those that run go on", "path", f.sources.cfg.StaticPodPath)
			f.sources.deps.Health.Set("static pods", false, err.Error())
		}
		f.feed.doubt(log, !f.listed)
		return
	}
	f.problem, f.writing, f.listed = "", false, true
	f.dropRemoved(log)
	f.feed.unseen = false
	present := map[string]bool{}
	var entries []*entry
	for _, path := range paths {
		present[path] = true
		f.readFile(log, path)
		if e := f.known[path]; e != nil {
			entries = append(entries, e)
		} else if f.writing {
			f.feed.unseen = true
		}
	}
	for path := range f.known {
		if !present[path] {
			delete(f.known, path)
		}
	}
	f.feed.restless = f.restless(present)
	f.feed.publish(log, entries)
}

// restless are the files that have been written for so long that it has to be said.
func (f *files) restless(present map[string]bool) (errs []string) {
	maps.DeleteFunc(f.since, func(path string, _ time.Time) bool { return !present[path] })
	for _, path := range slices.Sorted(maps.Keys(f.since)) {
		if time.Since(f.since[path]) >= writtenWithin {
			errs = append(errs, fmt.Sprintf("static pod manifest %s: it is being written again and again, and is not read before that ends; if it is no manifest, let it be written elsewhere", path))
		}
	}
	return errs
}

// list returns the manifest files at path in lexical order; none when path
// does not exist.
func list(path string) ([]string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at static pod path %s: %w; check its permissions", path, err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("list static pod path %s: %w; check its permissions", path, err)
	}
	var out []string
	for _, e := range entries {
		full := filepath.Join(path, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if info, err := os.Stat(full); err == nil && info.IsDir() {
			continue
		}
		out = append(out, full)
	}
	return out, nil
}

// readFile takes in one file. A broken file is one error, and its last good
// pod goes on: a slip of the pen must not stop a control plane.
func (f *files) readFile(log klog.Logger, path string) {
	old := f.known[path]
	data, err := f.sources.readBounded(path, f.sources.cfg.MaxManifestBytes)
	if !errors.Is(err, errWriting) {
		delete(f.since, path)
	}
	switch {
	case errors.Is(err, errWriting):
		f.writing = true
		if _, known := f.since[path]; !known {
			f.since[path] = time.Now()
		}
		return
	case errors.Is(err, os.ErrNotExist) && !isLink(path):
		delete(f.known, path)
		return
	case errors.Is(err, os.ErrNotExist):
		err = errors.New("it is a symbolic link to nothing; correct or remove it")
	case err == nil && old != nil && old.data != nil && bytes.Equal(old.data, data):
		return
	}
	next := old
	if next == nil {
		next = &entry{where: path}
		f.known[path] = next
	}
	next.data = data
	var pod *v1.Pod
	if err == nil {
		var unknown string
		if pod, unknown, err = f.parse(path, data); unknown != "" {
			log.Info("Static pod has fields that no pod has, they are ignored; check their spelling and indentation", "file", path, "problem", unknown)
		}
	}
	f.feed.take(log, next, pod, err)
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Type() == os.ModeSymlink
}

// errWriting says that a file changed while it was read.
var errWriting = errors.New("it is being written")

func readBounded(path string, limit int64) ([]byte, error) {
	// Without waiting: a named pipe would wait for its writer.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read it: %w; check its permissions", err)
	}
	defer file.Close()
	before, err := file.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("read it: %w", err)
	case !before.Mode().IsRegular():
		return nil, fmt.Errorf("it is not a regular file but %s; remove it", before.Mode().Type())
	case before.Size() > limit:
		// Its size is left out: of a file that grows each one would be news.
		return nil, fmt.Errorf("it has more than %d bytes; a manifest must be smaller", limit)
	}
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	after, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	if after.Size() != int64(len(data)) || !after.ModTime().Equal(before.ModTime()) {
		return nil, errWriting
	}
	return data, nil
}

// parse makes a pod of a manifest's text.
func (f *files) parse(path string, data []byte) (*v1.Pod, string, error) {
	pod, unknown, err := f.decoder.decode(data)
	if err != nil {
		return nil, "", err
	}
	return pod, unknown, finish(pod, origin{node: f.sources.cfg.NodeName, src: File, path: path, seen: time.Now(), mayRefer: f.sources.cfg.AllowAPIReferences})
}
