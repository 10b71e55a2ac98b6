package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/rpc"
)

const (
	// figuresDisk is the size of the disk of the node's root directory, of which ext4 keeps a
	// twentieth for root, and of that of the images, in MiB, and how many inodes each has.
	figuresDisk, figuresInodes = 1024, 20000
	// diskSlack is by how much a figure may be beside what df says before and after it, and
	// inodeSlack by how many inodes: what the node itself writes in a look's time (statuses of
	// its pods, lines of logs, containerd's database). Nobody else writes on these disks. What
	// ext4 keeps for root is 50 times as much.
	diskSlack, inodeSlack = 1 << 20, 64
	// memorySlack is by how much one of memory may be beside what the kernel says: the machine
	// is that of other tests, too, which take and give back while it is measured, and the
	// kernel itself counts a cgroup's pages in batches of each processor. A mebibyte of the
	// page cache more or less does not matter to an eviction; all of what may be given back at
	// once, which is to be left out, is hundreds.
	memorySlack = 64 << 20
	// threadSlack is the same of threads.
	threadSlack = 2000
)

// What is told of disks and memory is what df and free tell, so that who looks at the node
// with those sees why a pod went: the stream of signals that evictions go by, the summary,
// and polylet explain node. The machine is not still meanwhile, so each figure has to lie
// between what is said before and after it, at some time; a figure that is another one
// (what is free instead of what may be had, bytes of a block of another size) never does.
func TestFiguresAgreeWithDfAndFree(t *testing.T) {
	h := build(t, plan{standalone: true, noRuntime: true, overrides: map[string]any{
		// Of all these it is short, and static pods do not go for it.
		"evictionSoft":            map[string]any{"memory.available": "99.9%", "nodefs.available": "99.9%", "nodefs.inodesFree": "99.9%", "imagefs.available": "99.9%", "imagefs.inodesFree": "99.9%"},
		"evictionSoftGracePeriod": map[string]any{"memory.available": "1s", "nodefs.available": "1s", "nodefs.inodesFree": "1s", "imagefs.available": "1s", "imagefs.inodesFree": "1s"},
		"evictionHard":            map[string]any{"memory.available": "50Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%"},
		"volumeStatsAggPeriod":    "1s",
	}, prepare: func(h *house) {
		h.ownDisk("kubelet", figuresDisk, figuresInodes)
		h.must(unix.Mount("images", h.inst.Path("root"), "tmpfs", 0, fmt.Sprintf("size=%dm,nr_inodes=%d", figuresDisk, figuresInodes)))
		h.must(h.runtime.Process.Start(h.ctx))
	}})
	p := withScratch(app("writer", "take", "mebibytes=50", "path=/scratch/file"), "")
	inMemory, inLayer := app("", "take", "mebibytes=20", "path=/memory/file").Spec.Containers[0], app("", "take", "mebibytes=30", "path=/file").Spec.Containers[0]
	inMemory.Name, inLayer.Name = "memory", "layer"
	inMemory.VolumeMounts = []corev1.VolumeMount{{Name: "memory", MountPath: "/memory"}}
	size := resource.MustParse("40Mi")
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &size}}})
	p.Spec.Containers = append(p.Spec.Containers, inMemory, inLayer)
	p.APIVersion, p.Kind, p.Spec.NodeName = "v1", "Pod", ""
	h.addPod(p)
	h.waitStatic("writer", "the pod has written", time.Minute, func(p *corev1.Pod) error { return boolError(isReady(p), "%s", describe(p)) })
	volumes, err := filepath.Glob(filepath.Join(h.node.RootDir, "pods", "*", "volumes", "kubernetes.io~empty-dir", "memory"))
	h.must(errors.Join(err, boolError(len(volumes) == 1, "volumes are in %s", volumes)))

	root := h.df(h.node.RootDir)
	if kept := root.size - root.used - root.left; kept < 10*diskSlack && h.isExt4(h.node.RootDir) {
		t.Fatalf("nothing is kept for root, so that it does not show what is taken for free: %+v", root)
	}
	h.eventually(time.Minute, "the summary agrees with df", func() error { return h.summaryAsDf(volumes[0]) })
	h.eventually(time.Minute, "the summary agrees with the kernel's account of memory", h.summaryAsFree)
	if onKubelet() {
		return
	}
	h.eventually(time.Minute, "the signals agree", h.signalsAgree)
	h.eventually(time.Minute, "polylet explain node agrees", h.explainedAsDf)
}

// room is what df says of a filesystem.
type room struct{ size, used, left, inodes, inodesUsed, inodesLeft uint64 }

// df runs df -B1 and df -i of a directory.
func (h *house) df(dir string) (r room) {
	h.Helper()
	out, err := exec.CommandContext(h.ctx, "df", "-B1", "--output=size,used,avail,itotal,iused,iavail", dir).Output()
	h.must(err)
	_, figures, _ := strings.Cut(string(out), "\n")
	_, err = fmt.Sscan(figures, &r.size, &r.used, &r.left, &r.inodes, &r.inodesUsed, &r.inodesLeft)
	h.must(err)
	return r
}

func (h *house) isExt4(dir string) bool {
	h.Helper()
	var st unix.Statfs_t
	h.must(unix.Statfs(dir, &st))
	return st.Type == unix.EXT4_SUPER_MAGIC
}

// figure is one that was told, and what was said of the same before and after.
type figure struct {
	name                string
	told, before, after uint64
	slack               uint64
}

// agree says which of them do not lie between, with their slack.
func agree(figures ...figure) error {
	var errs []error
	for _, f := range figures {
		low, high := min(f.before, f.after), max(f.before, f.after)
		if f.told+f.slack < low || f.told > high+f.slack {
			errs = append(errs, fmt.Errorf("%s is %d, and was %d before and %d after", f.name, f.told, f.before, f.after))
		}
	}
	return errors.Join(errs...)
}

// ofDisk are a filesystem's; nil is what is not told.
func ofDisk(name string, before, after room, fs *stats.FsStats) []figure {
	var out []figure
	add := func(what string, told *uint64, before, after, slack uint64) {
		if told != nil {
			out = append(out, figure{name + "'s " + what, *told, before, after, slack})
		}
	}
	add("capacity", fs.CapacityBytes, before.size, after.size, 0)
	add("bytes that are used", fs.UsedBytes, before.used, after.used, diskSlack)
	add("bytes that are left", fs.AvailableBytes, before.left, after.left, diskSlack)
	add("inodes", fs.Inodes, before.inodes, after.inodes, 0)
	add("inodes that are used", fs.InodesUsed, before.inodesUsed, after.inodesUsed, inodeSlack)
	add("inodes that are left", fs.InodesFree, before.inodesLeft, after.inodesLeft, inodeSlack)
	return out
}

func (h *house) summary() (*stats.Summary, error) {
	body, err := h.tryGet(h.node.ReadOnlyURL + "/stats/summary")
	if err != nil {
		return nil, err
	}
	var out stats.Summary
	return &out, json.Unmarshal([]byte(body), &out)
}

// summaryAsDf compares /stats/summary with df, of the node's disk, that of the images and
// that of a volume in memory.
func (h *house) summaryAsDf(volume string) error {
	h.Helper()
	dirs := []string{h.node.RootDir, h.inst.Path("root"), volume}
	before, after := make([]room, len(dirs)), make([]room, len(dirs))
	for i, dir := range dirs {
		before[i] = h.df(dir)
	}
	s, err := h.summary()
	if err != nil {
		return err
	}
	for i, dir := range dirs {
		after[i] = h.df(dir)
	}
	if s.Node.Fs == nil || s.Node.Runtime == nil || s.Node.Runtime.ImageFs == nil || s.Node.Fs.AvailableBytes == nil || s.Node.Runtime.ImageFs.AvailableBytes == nil {
		return errors.New("not all disks are in the summary")
	}
	images := *s.Node.Runtime.ImageFs
	images.UsedBytes, images.InodesUsed = nil, nil // What images use of it, not what all do.
	figures := append(ofDisk("the node's disk", before[0], after[0], s.Node.Fs), ofDisk("the images' disk", before[1], after[1], &images)...)
	found := false
	for _, p := range s.Pods {
		for _, v := range p.VolumeStats {
			if p.PodRef.Name == "writer-"+nodeName && v.Name == "memory" && v.AvailableBytes != nil && v.UsedBytes != nil {
				found = true
				v.Inodes, v.InodesUsed, v.InodesFree = nil, nil, nil // tmpfs's root is one, of which du knows nothing.
				figures = append(figures, ofDisk("a volume in memory", before[2], after[2], &v.FsStats)...)
			}
		}
	}
	return errors.Join(agree(figures...), boolError(found, "the volume is not in the summary"))
}

// memory is the machine's, as free and /proc/meminfo have it, in bytes.
type memory struct {
	total, free uint64
	// working is what is in use and cannot be given back at once: the kubelet's working set.
	working uint64
}

// free runs free -b, and reads of /proc/meminfo what that adds up in one column: what is
// of the page cache, and of that what was not used lately.
func (h *house) free() (m memory) {
	h.Helper()
	out, err := exec.CommandContext(h.ctx, "free", "-b").Output()
	h.must(err)
	line := regexp.MustCompile(`(?m)^Mem: +(\d+) +\d+ +(\d+) `).FindSubmatch(out)
	if line == nil {
		h.Fatalf("free -b says %s", out)
	}
	_, err = fmt.Sscan(string(line[1])+" "+string(line[2]), &m.total, &m.free)
	h.must(err)
	data, err := os.ReadFile("/proc/meminfo")
	h.must(err)
	kib := map[string]uint64{}
	for text := range strings.Lines(string(data)) {
		var n uint64
		name, rest, _ := strings.Cut(text, ":")
		if _, err := fmt.Sscan(rest, &n); err == nil {
			kib[name] = n
		}
	}
	m.working = (kib["AnonPages"] + kib["Cached"] + kib["Buffers"] + kib["SwapCached"] - kib["Inactive(file)"]) << 10
	return m
}

// summaryAsFree compares /stats/summary with free and /proc/meminfo.
func (h *house) summaryAsFree() error {
	h.Helper()
	before := h.free()
	s, err := h.summary()
	if err != nil {
		return err
	}
	after := h.free()
	m := s.Node.Memory
	if m == nil || m.AvailableBytes == nil || m.WorkingSetBytes == nil {
		return errors.New("there is no memory in the summary")
	}
	return errors.Join(agree(
		figure{"all memory", *m.AvailableBytes + *m.WorkingSetBytes, before.total, after.total, 0},
		figure{"the working set", *m.WorkingSetBytes, before.working, after.working, memorySlack},
	), boolError(*m.AvailableBytes+memorySlack >= min(before.free, after.free), "%d are left, less than the %d that free says nobody uses", *m.AvailableBytes, before.free))
}

// signalsAgree compares what evictions go by with df, free and the kernel's count of threads.
func (h *house) signalsAgree() error {
	h.Helper()
	conn, err := rpc.Dial(filepath.Join(h.node.SocketDir, "stats.sock"))
	h.must(err)
	defer conn.Close()
	root, images, ram, running := h.df(h.node.RootDir), h.df(h.inst.Path("root")), h.free(), runningThreads()
	stream, err := statsv1.NewStatsServiceClient(conn).WatchSignals(h.ctx, &statsv1.WatchSignalsRequest{})
	h.must(err)
	frame, err := stream.Recv()
	h.must(err)
	rootAfter, imagesAfter, ramAfter, runningAfter := h.df(h.node.RootDir), h.df(h.inst.Path("root")), h.free(), runningThreads()
	got := map[string]*statsv1.Signal{}
	for _, s := range frame.GetSignals() {
		got[s.GetName()] = s
	}
	_, most := threads(h.T)
	var figures []figure
	for name, f := range map[string]struct{ size, before, after, slack uint64 }{
		"nodefs.available":   {root.size, root.left, rootAfter.left, diskSlack},
		"nodefs.inodesFree":  {root.inodes, root.inodesLeft, rootAfter.inodesLeft, inodeSlack},
		"imagefs.available":  {images.size, images.left, imagesAfter.left, diskSlack},
		"imagefs.inodesFree": {images.inodes, images.inodesLeft, imagesAfter.inodesLeft, inodeSlack},
		"memory.available":   {ram.total, ram.total - ram.working, ramAfter.total - ramAfter.working, memorySlack},
		"pid.available":      {most, most - running, most - runningAfter, threadSlack},
	} {
		s := got[name]
		if s == nil {
			return fmt.Errorf("no signal %s", name)
		}
		figures = append(figures, figure{name + "'s capacity", s.GetCapacity(), f.size, f.size, 0}, figure{name, s.GetAvailable(), f.before, f.after, f.slack})
	}
	return errors.Join(agree(figures...), boolError(frame.GetImagesApart(), "the images are not said to be on a disk of their own"))
}

// explainedAsDf compares what the node is said to be short of.
func (h *house) explainedAsDf() error {
	h.Helper()
	root, images, ram := h.df(h.node.RootDir), h.df(h.inst.Path("root")), h.free()
	out, err := h.polylet("explain", "node", "-o", "json")
	h.must(err)
	rootAfter, imagesAfter, ramAfter := h.df(h.node.RootDir), h.df(h.inst.Path("root")), h.free()
	var said struct {
		Shortages []struct{ Signal, Available string }
	}
	h.must(json.Unmarshal([]byte(out), &said))
	wants := map[string]figure{
		"nodefs.available":   {"", 0, root.left, rootAfter.left, diskSlack},
		"nodefs.inodesFree":  {"", 0, root.inodesLeft, rootAfter.inodesLeft, inodeSlack},
		"imagefs.available":  {"", 0, images.left, imagesAfter.left, diskSlack},
		"imagefs.inodesFree": {"", 0, images.inodesLeft, imagesAfter.inodesLeft, inodeSlack},
		"memory.available":   {"", 0, ram.total - ram.working, ramAfter.total - ramAfter.working, memorySlack},
	}
	var figures []figure
	for _, s := range said.Shortages {
		f, there := wants[s.Signal]
		if !there {
			continue
		}
		delete(wants, s.Signal)
		q, err := resource.ParseQuantity(s.Available)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Signal, err)
		}
		f.name, f.told = s.Signal, uint64(q.Value())
		figures = append(figures, f)
	}
	return errors.Join(agree(figures...), boolError(len(wants) == 0, "nothing is said of %v: %s", wants, out))
}
