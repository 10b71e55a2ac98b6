package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// settle is how long the path must be quiet before it is read: an editor
// makes several events of one save.
const settle = 10 * time.Millisecond

// files follows the static pod path.
type files struct {
	sources *Sources
	sink    Sink
	decoder *decoder
	// known holds every manifest file by path.
	known map[string]*manifest
	// running holds the pods given to the sink, by UID.
	running map[types.UID]*v1.Pod
	// problem is the error of the path itself that was last logged.
	problem string
}

// manifest is one file.
type manifest struct {
	data []byte
	// pod is the last good one; it stays while the file is broken.
	pod *v1.Pod
	// err is what is wrong with data; nil when it is good.
	err error
	// twin is what was logged of another file that holds the same pod.
	twin string
}

func (s *Sources) runFiles(ctx context.Context, sink Sink) error {
	decoder, err := newDecoder()
	if err != nil {
		return err
	}
	f := &files{sources: s, sink: sink, decoder: decoder, known: map[string]*manifest{}, running: map[types.UID]*v1.Pod{}}
	changed := make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.notify(ctx, changed)
	}()
	defer func() { <-done }()
	f.read(ctx)
	s.deps.Mirrors.StaticReady()
	sink.Ready(File)
	again := time.NewTicker(s.cfg.FileCheckFrequency)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		case <-changed:
			if !sleep(ctx, settle) {
				return nil
			}
			select {
			case <-changed:
			default:
			}
		}
		f.read(ctx)
	}
}

// notify passes changes of the path on for as long as ctx lasts.
func (s *Sources) notify(ctx context.Context, changed chan<- struct{}) {
	log := klog.FromContext(ctx)
	last := ""
	for ctx.Err() == nil {
		err := s.deps.Notifier.Notify(ctx, s.cfg.StaticPodPath, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
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
		return
	}
	f.problem = ""
	present := map[string]bool{}
	for _, path := range paths {
		present[path] = true
		f.readFile(ctx, path)
	}
	for path := range f.known {
		if !present[path] {
			delete(f.known, path)
		}
	}
	f.publish(log, paths)
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
func (f *files) readFile(ctx context.Context, path string) {
	log := klog.FromContext(ctx).WithValues("file", path)
	old := f.known[path]
	data, err := readBounded(path, f.sources.cfg.MaxManifestBytes)
	if errors.Is(err, os.ErrNotExist) {
		delete(f.known, path)
		return
	}
	if err == nil && old != nil && bytes.Equal(old.data, data) {
		return
	}
	next := &manifest{data: data}
	if old != nil {
		next.pod = old.pod
	}
	f.known[path] = next
	if err == nil {
		var unknown string
		var pod *v1.Pod
		if pod, unknown, err = f.parse(path, data); err == nil {
			next.pod = pod
		}
		if unknown != "" {
			log.Info("Static pod has fields that no pod has, they are ignored; check their spelling and indentation", "problem", unknown)
		}
	}
	if err == nil {
		if old != nil && old.err != nil {
			log.Info("Static pod manifest is good again", "pod", klog.KObj(next.pod))
		}
		return
	}
	next.err = fmt.Errorf("static pod manifest %s: %w", path, err)
	if old == nil || old.err == nil || old.err.Error() != next.err.Error() {
		consequence := "nothing is started from it"
		if next.pod != nil {
			consequence = "the pod of its last good content goes on"
		}
		log.Error(next.err, "Static pod manifest is broken; correct or remove the file, other pods are not affected", "consequence", consequence)
		f.sources.deps.Events.Node(v1.EventTypeWarning, "FailedValidation", next.err.Error()+"; "+consequence)
	}
}

func readBounded(path string, limit int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("it is not a regular file but %s; remove it", info.Mode().Type())
	}
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("it is larger than %d bytes; a manifest must be smaller", limit)
	}
	return data, nil
}

// parse makes a pod of a manifest's text.
func (f *files) parse(path string, data []byte) (*v1.Pod, string, error) {
	pod, unknown, err := f.decoder.decode(data)
	if err != nil {
		return nil, "", err
	}
	err = complete(pod, origin{node: f.sources.cfg.NodeName, src: File, path: path, seen: time.Now()})
	if err != nil {
		return nil, unknown, err
	}
	if errs := validate(pod); len(errs) > 0 {
		return nil, unknown, errs.ToAggregate()
	}
	return pod, unknown, nil
}

// publish gives the sink what has changed. Of files that hold the same name or
// UID, the first in lexical order counts.
func (f *files) publish(log klog.Logger, paths []string) {
	wanted := map[types.UID]*v1.Pod{}
	owners := map[string]string{}
	var broken []string
	for _, path := range paths {
		m := f.known[path]
		if m == nil {
			continue
		}
		if m.err != nil {
			broken = append(broken, m.err.Error())
		}
		if m.pod == nil {
			continue
		}
		name := m.pod.Namespace + "/" + m.pod.Name
		if first, taken := owners[name]; taken || wanted[m.pod.UID] != nil {
			err := fmt.Errorf("static pod manifest %s: pod %s (uid %s) is in %s too; rename one of them or remove a file", path, name, m.pod.UID, first)
			broken = append(broken, err.Error())
			if m.twin != err.Error() {
				m.twin = err.Error()
				log.Error(err, "Static pod is left out")
				f.sources.deps.Events.Pod(m.pod, v1.EventTypeWarning, "FailedValidation", err.Error())
			}
			continue
		}
		m.twin = ""
		owners[name] = path
		wanted[m.pod.UID] = m.pod
	}
	for uid := range f.running {
		if wanted[uid] == nil {
			delete(f.running, uid)
			f.sources.deps.Mirrors.RemoveStatic(uid)
			f.sink.Remove(uid, File)
		}
	}
	for _, path := range paths { // in order, for the sake of the log
		m := f.known[path]
		if m == nil || m.pod == nil || wanted[m.pod.UID] != m.pod || f.running[m.pod.UID] == m.pod {
			continue
		}
		f.running[m.pod.UID] = m.pod
		f.sources.deps.Mirrors.SetStatic(m.pod)
		f.sink.Set(m.pod, File)
	}
	f.sources.deps.Health.Set("static pods", len(broken) == 0, strings.Join(broken, "; "))
}
