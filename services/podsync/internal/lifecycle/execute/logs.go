package execute

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
)

// PodLogDir is where the logs of a pod's containers lie.
func (e *Executor) PodLogDir(pod *v1.Pod) string {
	return filepath.Join(e.cfg.PodLogsDir, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID))
}

// linkLog makes the link by which log collectors find a container's log. That it
// cannot be made is logged only: the container runs all the same.
func (e *Executor) linkLog(ctx context.Context, pod *v1.Pod, container, id string, count int) {
	if e.cfg.ContainerLogsDir == "" {
		return
	}
	target := filepath.Join(e.PodLogDir(pod), container, strconv.Itoa(count)+".log")
	link := filepath.Join(e.cfg.ContainerLogsDir, podcache.LogLink(pod.Name, pod.Namespace, container, id))
	err := os.Symlink(target, link)
	if errors.Is(err, os.ErrNotExist) {
		if err = os.MkdirAll(e.cfg.ContainerLogsDir, 0o755); err == nil {
			err = os.Symlink(target, link)
		}
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		klog.FromContext(ctx).Error(err, "Could not link a container's log; log collectors will not find it",
			"pod", klog.KObj(pod), "container", container, "link", link)
	}
}

// removeLogs removes the logs of one container that was removed: its file, what
// rotation made of it, and the link.
func (e *Executor) removeLogs(t Task, count int) {
	if t.Pod == nil || count < 0 || e.cfg.PodLogsDir == "" || t.Action.Container == "" {
		return
	}
	dir := filepath.Join(e.PodLogDir(t.Pod), filepath.Base(t.Action.Container))
	if highest, ok := highestLog(dir); ok && highest == count && e.deps.Returns(t.UID) {
		for n := range count { // what was kept so before
			removeLog(dir, n)
		}
	} else {
		removeLog(dir, count)
	}
	if e.cfg.ContainerLogsDir != "" {
		_ = os.Remove(filepath.Join(e.cfg.ContainerLogsDir, podcache.LogLink(t.Pod.Name, t.Pod.Namespace, t.Action.Container, t.Action.ID)))
	}
}

// removeLog removes one log of a container, and what rotation made of it.
func removeLog(dir string, count int) {
	file := filepath.Join(dir, strconv.Itoa(count)+".log")
	rotated, _ := filepath.Glob(file + ".*")
	for _, f := range append(rotated, file) {
		_ = os.Remove(f)
	}
}

// removeDirectories removes all files of a pod that is gone: its directory, and, unless
// it comes back, its logs and the links to them.
func (e *Executor) removeDirectories(t Task) error {
	if err := e.deps.Volumes.RemovePodDir(t.UID); err != nil {
		return err
	}
	if e.cfg.PodLogsDir != "" && !e.deps.Returns(t.UID) {
		dirs, err := e.logDirsOf(t)
		if err != nil {
			return fmt.Errorf("find the logs of pod %s: %w", t.UID, err)
		}
		for _, dir := range dirs {
			e.removeLinks(dir)
			if err := os.RemoveAll(dir); err != nil {
				return fmt.Errorf("remove the logs of pod %s: %w", t.UID, err)
			}
		}
	}
	e.forget(t.UID)
	return nil
}

// logDirsOf finds the directories of a pod's logs. Of one that no source knows
// only the UID is known.
func (e *Executor) logDirsOf(t Task) ([]string, error) {
	if t.Pod != nil {
		return []string{e.PodLogDir(t.Pod)}, nil
	}
	names, err := namesIn(e.cfg.PodLogsDir)
	var dirs []string
	for _, name := range names {
		if parts := logDirParts(name); len(parts) == 3 && parts[2] == string(t.UID) {
			dirs = append(dirs, filepath.Join(e.cfg.PodLogsDir, name))
		}
	}
	return dirs, err
}

// logDirParts are namespace, name and UID in the name of a pod's log directory. Only the UID
// may have an underscore itself.
func logDirParts(name string) []string { return strings.SplitN(name, "_", 3) }

// removeLinks removes the links that point into a pod's log directory.
func (e *Executor) removeLinks(dir string) {
	if e.cfg.ContainerLogsDir == "" {
		return
	}
	parts := logDirParts(filepath.Base(dir))
	if len(parts) != 3 {
		return
	}
	names, _ := namesIn(e.cfg.ContainerLogsDir)
	for _, name := range names {
		if !strings.HasPrefix(name, parts[1]+"_"+parts[0]+"_") {
			continue
		}
		link := filepath.Join(e.cfg.ContainerLogsDir, name)
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, dir+"/") {
			_ = os.Remove(link)
		}
	}
}

// namesIn lists a directory without looking at what is in it; one that is not
// there is empty.
func namesIn(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// LogCounts finds the highest <n>.log of each of a pod's containers.
func (e *Executor) LogCounts(pod *v1.Pod) map[string]int {
	if e.cfg.PodLogsDir == "" {
		return nil
	}
	containers, err := os.ReadDir(e.PodLogDir(pod))
	if err != nil {
		return nil
	}
	counts := map[string]int{}
	for _, c := range containers {
		if n, some := highestLog(filepath.Join(e.PodLogDir(pod), c.Name())); some {
			counts[c.Name()] = n
		}
	}
	return counts
}

// highestLog is the highest <n>.log of one container; false when it has none.
func highestLog(dir string) (highest int, some bool) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return 0, false
	}
	for _, f := range files {
		number, _, _ := strings.Cut(f.Name(), ".log")
		if n, err := strconv.Atoi(number); err == nil && n >= 0 && (!some || n > highest) {
			highest, some = n, true
		}
	}
	return highest, some
}
