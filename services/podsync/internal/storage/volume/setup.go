package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
)

// result is how the set-up of one volume went.
type result struct {
	path string
	// refresh is when the content should be made again; zero for never.
	refresh time.Time
	err     error
}

// Setup makes all volumes of pod, in parallel. It is idempotent, and also the
// way to tell of a pod's new labels or annotations. The error names each
// failing volume: `MountVolume.SetUp failed for volume "v" : …`.
func (s *Set) Setup(ctx context.Context, pod *v1.Pod) error {
	if err := component("pod UID", string(pod.UID)); err != nil {
		return err
	}
	s.deps.Objects.Hold(pod)
	st, leave, err := s.enter(ctx, pod.UID)
	if err != nil {
		return fmt.Errorf("set up the volumes of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	defer leave()
	if err := s.room(st, pod); err != nil {
		return fmt.Errorf("set up the volumes of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	results := s.setupAll(ctx, pod, func(*v1.Volume) bool { return true })
	return s.record(st, pod, results)
}

// atOnce is how many volumes of a pod are set up at once: the files of each are held
// until they are written.
const atOnce = 16

// setupAll sets up the chosen volumes, many at once.
func (s *Set) setupAll(ctx context.Context, pod *v1.Pod, chosen func(*v1.Volume) bool) map[string]result {
	results := make(map[string]result, len(pod.Spec.Volumes))
	var mu sync.Mutex
	var wg sync.WaitGroup
	places := make(chan struct{}, atOnce)
	mounts := sync.OnceValue(func() *mountIndex { return indexMounts(pod) })
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if !chosen(v) {
			continue
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			began := time.Now()
			ended := timeline.Start(ctx, timeline.Volume, v.Name, sourceOf(v))
			path, refresh, err := s.setup(ctx, pod, v, mounts)
			ended(err)
			s.deps.Metrics.Volume("volume_mount", shownPlugin(v), began, err)
			mu.Lock()
			defer mu.Unlock()
			results[v.Name] = result{path, refresh, err}
		})
	}
	wg.Wait()
	return results
}

// record keeps what was set up and plans the next refresh.
func (s *Set) record(st *podState, pod *v1.Pod, results map[string]result) error {
	var failures []error
	var next time.Time
	s.mu.Lock()
	st.pod = pod
	st.failed = false
	for i := range pod.Spec.Volumes {
		name := pod.Spec.Volumes[i].Name
		r, done := results[name]
		switch {
		case !done:
			continue
		case r.err != nil:
			st.failed = true
			failures = append(failures, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", name, r.err))
			continue
		}
		st.paths[name] = r.path
		if !r.refresh.IsZero() && (next.IsZero() || r.refresh.Before(next)) {
			next = r.refresh
		}
	}
	st.next = next
	s.mu.Unlock()
	if !next.IsZero() {
		s.refreshAt(pod.UID, time.Now().Add(max(time.Until(next), time.Second)))
	}
	return list(failures)
}

// list joins errors in one line, the first ones when they are many.
func list(errs []error) error {
	if len(errs) <= 1 {
		return errors.Join(errs...)
	}
	named := errs[:min(len(errs), mostFailed)]
	texts := make([]string, len(named))
	for i, err := range named {
		texts[i] = err.Error()
	}
	text := strings.Join(texts, "; ")
	if more := len(errs) - len(named); more > 0 {
		text += fmt.Sprintf("; and %d more volumes failed", more)
	}
	return &failures{text: text, errs: named}
}

type failures struct {
	text string
	errs []error
}

func (f *failures) Error() string   { return f.text }
func (f *failures) Unwrap() []error { return f.errs }

// setup makes one volume. mounts are the pod's.
func (s *Set) setup(ctx context.Context, pod *v1.Pod, v *v1.Volume, mounts func() *mountIndex) (string, time.Time, error) {
	if err := component("volume name", v.Name); err != nil {
		return "", time.Time{}, err
	}
	switch {
	case v.HostPath != nil:
		return v.HostPath.Path, time.Time{}, checkHostPath(v.HostPath)
	case v.EmptyDir != nil:
		path, err := s.emptyDir(pod, v)
		return path, time.Time{}, err
	case v.Image != nil:
		return "", time.Time{}, nil // the runtime mounts it; its image is pulled beside
	case isContent(v):
		return s.content(ctx, pod, v, mounts)
	}
	return "", time.Time{}, fmt.Errorf("volumes of type %s are not supported yet; use emptyDir, hostPath, configMap, secret, downwardAPI or projected", typeName(v))
}

// isContent says whether a volume holds files that podsync writes and renews.
func isContent(v *v1.Volume) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

// typeName is the field of the volume's source that is set.
func typeName(v *v1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return "persistentVolumeClaim"
	case v.CSI != nil:
		return "csi"
	case v.Ephemeral != nil:
		return "ephemeral"
	case v.NFS != nil:
		return "nfs"
	case v.ISCSI != nil:
		return "iscsi"
	case v.FC != nil:
		return "fc"
	case v.FlexVolume != nil:
		return "flexVolume"
	case v.GitRepo != nil:
		return "gitRepo (removed from Kubernetes; clone in an init container)"
	}
	return "(unknown to this node)"
}

// makeDir makes a directory of the pod's tree with exactly this mode.
func makeDir(dir string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return err
	}
	if err := os.Mkdir(dir, mode); err != nil {
		if info, statErr := os.Lstat(dir); statErr != nil || !info.IsDir() {
			return err
		}
	}
	return os.Chmod(dir, mode)
}
