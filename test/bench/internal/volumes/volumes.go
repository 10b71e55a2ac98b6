// Package volumes measures pods with volumes: how soon they are Ready, how soon they are
// gone and nothing of their volumes is mounted, and what a CSI driver is asked for. It
// must never count a volume as set up or gone that it has not looked at.
package volumes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/test/bench/internal/hostcalls"
	"github.com/polylet/polylet/test/bench/internal/report"
	"github.com/polylet/polylet/test/bench/internal/stage"
	"github.com/polylet/polylet/test/bench/internal/usage"
	"github.com/polylet/polylet/test/harness/install"
)

const (
	// together is how many pods are created at a time: a busy machine does not start a
	// hundred within the time that is waited for them.
	together = 20
	// unmountWithin bounds the wait for the end of mounts.
	unmountWithin = 3 * time.Minute
)

// bench is a node with a CSI driver and those who make pods on it.
type bench struct {
	*stage.Stage
	s     Settings
	c     *report.Column
	calls string // the file of what the driver was asked for
}

// measure measures one agent on a fresh stage.
func measure(ctx context.Context, s Settings, agent string, r *report.Results) error {
	if err := install.Check(); err != nil {
		return err
	}
	st := &stage.Stage{}
	defer st.Close()
	if err := st.Open(ctx, agent); err != nil {
		return err
	}
	if err := st.Node.Start(ctx); err != nil {
		return err
	}
	if err := st.WaitForNode(ctx); err != nil {
		return err
	}
	b := &bench{Stage: st, s: s, c: r.Column(agent)}
	stop, err := b.driver(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if err := errors.Join(b.objects(ctx), b.claims(ctx, s.Driven)); err != nil {
		return err
	}
	if err := stage.Sleep(ctx, stage.Settle); err != nil {
		return err
	}
	if err := b.all(ctx); err != nil {
		return fmt.Errorf("%w%s", err, st.Node.Logs(30))
	}
	return nil
}

// all measures pods with the node's own volumes, and then those with a driver's.
func (b *bench) all(ctx context.Context) error {
	what := fmt.Sprintf("%d pods with configMap, secret, token and emptyDir", b.s.Own)
	if err := b.lives(ctx, what, numbered("own", b.s.Own), own); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	what = fmt.Sprintf("%d pods with a volume of a CSI driver each", b.s.Driven)
	if err := b.lives(ctx, what, numbered("driven", b.s.Driven), driven); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	asked, err := calls(b.calls)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(keys(asked)) {
		b.c.Add("calls of "+name+" per pod", float64(asked[name])/float64(max(b.s.Driven, 1)))
	}
	return nil
}

// lives creates pods, so many at a time, waits until all are Ready, deletes them and waits
// until they are gone and nothing of their volumes is mounted.
func (b *bench) lives(ctx context.Context, what string, names []string, build func(name string) *corev1.Pod) error {
	if len(names) == 0 {
		return nil
	}
	o, err := stage.Observe(ctx, b.Stage)
	if err != nil {
		return err
	}
	defer o.Watch.Stop()
	calls, err := b.hostCalls()
	if err != nil {
		return err
	}
	defer func() { _ = calls.Close() }()
	pods := b.Cluster.Client.CoreV1().Pods(metav1.NamespaceDefault)
	for some := range slices.Chunk(names, together) {
		created, err := stage.Each(some, func(name string) error {
			_, err := pods.Create(ctx, build(name), metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return fmt.Errorf("create pods: %w", err)
		}
		up, err := o.Wait(ctx, some, func(m stage.Moments) bool { return !m.Ready.IsZero() })
		if err != nil {
			return fmt.Errorf("wait for Ready: %w", err)
		}
		for name, m := range up {
			b.c.Add(what+": create → Ready, ms", report.Milliseconds(m.Ready.Sub(created[name])))
		}
	}
	before, err := b.used()
	if err != nil {
		return err
	}
	began := time.Now()
	deleted, err := stage.Each(names, func(name string) error { return pods.Delete(ctx, name, metav1.DeleteOptions{}) })
	if err != nil {
		return fmt.Errorf("delete pods: %w", err)
	}
	ended := make(chan error, 1)
	var (
		after     map[string]float64
		unmounted time.Time
		left      int
	)
	go func() {
		err := b.unmounted(ctx)
		unmounted = time.Now()
		if err == nil {
			after, err = b.used()
		}
		if err == nil {
			left, err = b.containers(ctx)
		}
		ended <- err
	}()
	gone, err := o.Wait(ctx, names, func(m stage.Moments) bool { return !m.Gone.IsZero() })
	if err != nil {
		return fmt.Errorf("wait for gone: %w", errors.Join(err, <-ended))
	}
	for name, m := range gone {
		b.c.Add(what+": delete → gone, ms", report.Milliseconds(m.Gone.Sub(deleted[name])))
	}
	if err := <-ended; err != nil {
		return err
	}
	b.c.Add(what+": delete → all unmounted, ms", report.Milliseconds(unmounted.Sub(began)))
	b.c.Add(what+": containers that the runtime has still when all is unmounted, per pod", float64(left)/float64(len(names)))
	for _, name := range slices.Sorted(maps.Keys(after)) {
		b.c.Add(what+": CPU of "+name+" from delete to all unmounted, per pod, ms", (after[name]-before[name])/float64(len(names)))
	}
	return b.addHostCalls(what, calls, len(names))
}

// containers is how many the runtime has, though they have ended: to remove them is work, too.
func (b *bench) containers(ctx context.Context) (int, error) {
	list, err := b.Runtime.Runtime().ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	return len(list.GetContainers()), err
}

// used is the time of processors that all who have a part in a pod's end have used, in
// milliseconds. It depends little on what else the machine does.
func (b *bench) used() (map[string]float64, error) {
	used, err := usage.CPUOfEach(b.Node)
	if err != nil {
		return nil, err
	}
	if used["the runtime"], err = usage.CPUOfCgroup(b.Instance.CgroupRoot() + "/runtime"); err != nil {
		return nil, err
	}
	for name, pid := range map[string]int{"kube-apiserver": b.Cluster.APIServer.Pid(), "etcd": b.Cluster.Etcd.Pid()} {
		if used[name], err = usage.CPUOf(pid); err != nil {
			return nil, err
		}
	}
	return used, nil
}

// hostCalls begins to count what the agent asks the kernel for. A kernel without a tracer
// counts nothing, which is said.
func (b *bench) hostCalls() (*hostcalls.Counter, error) {
	dir, err := b.Instance.Mkdir("tracer")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, p := range b.Node.Processes {
		pids = append(pids, p.Pid())
	}
	calls, err := hostcalls.New(dir, pids)
	if err != nil {
		fmt.Fprintf(os.Stderr, "mounts and unmounts are not counted: %v\n", err)
		return nil, nil
	}
	return calls, nil
}

// addHostCalls adds what was counted, by pod.
func (b *bench) addHostCalls(what string, calls *hostcalls.Counter, pods int) error {
	if calls == nil {
		return nil
	}
	made, err := calls.Calls()
	if err != nil {
		return fmt.Errorf("count mounts and unmounts: %w", err)
	}
	for _, name := range slices.Sorted(keys(made)) {
		if per := float64(made[name]) / float64(pods); per >= 0.1 { // fewer are not the pods'
			b.c.Add(what+": calls of the kernel per pod: "+name, per)
		}
	}
	return nil
}

// unmounted waits until no volume is mounted. The kernel tells of it only by what it shows: of
// one mount after the other, since its whole table takes long to read where there are many
// pods, and this shares the machine with what it measures.
func (b *bench) unmounted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, unmountWithin)
	defer cancel()
	var left []string
	for {
		for len(left) > 0 && !isMount(left[0]) {
			left = left[1:]
		}
		if len(left) == 0 {
			table, err := os.ReadFile("/proc/self/mountinfo")
			if err != nil {
				return err
			}
			if left = mountsOf(table, b.Node.RootDir); len(left) == 0 {
				return nil
			}
		}
		if err := stage.Sleep(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("%d volumes are mounted still, one on %s: %w", len(left), left[0], err)
		}
	}
}

// isMount says whether something is mounted at a path.
func isMount(path string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_DONT_SYNC, 0, &st)
	return err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// mountsOf are the mounts of volumes below a root directory, by the kernel's table.
func mountsOf(table []byte, root string) (points []string) {
	for line := range bytes.Lines(table) {
		fields := strings.Fields(string(line))
		if len(fields) < 5 {
			continue
		}
		for _, below := range []string{"pods", filepath.Join("plugins", "kubernetes.io")} {
			if strings.HasPrefix(fields[4], filepath.Join(root, below)+"/") {
				points = append(points, fields[4])
			}
		}
	}
	return points
}

// calls counts the lines of a file by what they say.
func calls(file string) (map[string]int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("count the driver's calls: %w", err)
	}
	counts := map[string]int{}
	for name := range strings.FieldsSeq(string(text)) {
		counts[name]++
	}
	return counts, nil
}

func numbered(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return names
}
