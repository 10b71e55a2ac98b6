package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/report/timeline"
	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
)

// result is how the set-up of one volume went.
type result struct {
	// path of it; beside an error, where what was set up before stands.
	path string
	// refresh is when the content should be made again; zero for never.
	refresh time.Time
	err     error
}

// Setup makes volumes of pod, in parallel: those that are named, or all of them. It
// is idempotent, and also the way to tell of a pod's new labels or annotations. The
// error is podstate.VolumeErrors, unless it is of something before all volumes.
func (s *Set) Setup(ctx context.Context, pod *v1.Pod, volumes ...string) error {
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
	chosen := make(map[string]bool, len(volumes))
	for _, name := range volumes {
		chosen[name] = true
	}
	results := s.setupAll(ctx, pod, func(v *v1.Volume) bool { return len(volumes) == 0 || chosen[v.Name] })
	return s.record(st, pod, results, true)
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
			s.deps.Metrics.Volume("volume_mount", s.shownPlugin(pod.UID, v), began, err)
			mu.Lock()
			defer mu.Unlock()
			results[v.Name] = result{path, refresh, err}
		})
	}
	wg.Wait()
	return results
}

// record keeps what was set up and plans the next refresh. That of a volume which
// stands, and could not be made anew, stays failed or not as Setup has left it.
func (s *Set) record(st *podState, pod *v1.Pod, results map[string]result, setup bool) error {
	var failed podstate.VolumeErrors
	var next time.Time
	s.mu.Lock()
	st.pod = pod
	for i := range pod.Spec.Volumes {
		name := pod.Spec.Volumes[i].Name
		if r, done := results[name]; done {
			if err := st.recorded(name, r, setup); err != nil {
				failed = append(failed, err)
			}
		}
		if at := st.renewal[name]; !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	st.next = next
	s.mu.Unlock()
	if !next.IsZero() {
		s.refreshAt(pod.UID, time.Now().Add(max(time.Until(next), time.Second)))
	}
	return failed.OrNil()
}

// recorded keeps how one volume was made. One that could not be is renewed by whoever
// tries again, not by the clock.
func (st *podState) recorded(name string, r result, setup bool) *podstate.VolumeError {
	delete(st.renewal, name)
	if setup {
		delete(st.failed, name)
	}
	if r.err != nil {
		if setup {
			st.failed[name] = true
		}
		if _, known := st.paths[name]; !known && r.path != "" {
			st.paths[name] = r.path
		}
		return &podstate.VolumeError{Volume: name, Err: r.err, Stands: st.paths[name] != ""}
	}
	st.paths[name] = r.path
	if !r.refresh.IsZero() {
		st.renewal[name] = r.refresh
	}
	return nil
}

// setup makes one volume. mounts are the pod's.
func (s *Set) setup(ctx context.Context, pod *v1.Pod, v *v1.Volume, mounts func() *mountIndex) (string, time.Time, error) {
	if err := component("volume name", v.Name); err != nil {
		return "", time.Time{}, err
	}
	switch {
	case v.HostPath != nil:
		if err := checkHostPath(v.HostPath); err != nil {
			return "", time.Time{}, err // nothing of it was set up that could stand
		}
		return v.HostPath.Path, time.Time{}, nil
	case v.EmptyDir != nil:
		path, err := s.emptyDir(pod, v)
		return path, time.Time{}, err
	case v.Image != nil:
		return "", time.Time{}, nil // the runtime mounts it; its image is pulled beside
	case isContent(v):
		return s.content(ctx, pod, v, mounts)
	}
	if ref, is := claims.Of(pod, v); is {
		if !claims.Used(pod, v.Name) {
			return "", time.Time{}, nil
		}
		path, err := s.claimed(ctx, pod, v, ref)
		return path, time.Time{}, err
	}
	return "", time.Time{}, fmt.Errorf("volumes of type %s are not supported yet; use emptyDir, hostPath, configMap, secret, downwardAPI, projected, or a claim that is bound to a hostPath or local volume", typeName(v))
}

// isContent says whether a volume holds files that podsync writes and renews.
func isContent(v *v1.Volume) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

// typeName is the field of the volume's source that is set.
func typeName(v *v1.Volume) string {
	switch {
	case v.CSI != nil:
		return "csi"
	case v.NFS != nil:
		return "nfs"
	case v.ISCSI != nil:
		return "iscsi"
	case v.FC != nil:
		return "fc"
	case v.FlexVolume != nil:
		return "flexVolume (deprecated in Kubernetes; use a CSI driver)"
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
