package vm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/random"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/test/harness/registry"
)

const (
	// runtimeRoot is where the runtime has images and layers.
	runtimeRoot = "/var/lib/containerd"
	// unusedImage is one that nobody uses, of unusedSize bytes, which lie there packed and
	// unpacked.
	unusedImage = "unused.test/unused:v1"
	unusedSize  = 24 << 20
)

// TestJoinedOnImagesADiskOfTheirOwnNobodyGoesBeforeWhatNobodyNeeds: the disk is an ext4 of
// 1 GiB, and the node's own is another one.
func TestJoinedOnImagesADiskOfTheirOwnNobodyGoesBeforeWhatNobodyNeeds(t *testing.T) {
	client := joinedCluster(t)
	onDisk(t, diskOf(t, "images"))
	before := reconfigure(t, map[string]string{
		"evictionHard":                "{memory.available: 100Mi, nodefs.available: 1%, nodefs.inodesFree: 1%, imagefs.available: 25%, imagefs.inodesFree: 5%}",
		"imageGCHighThresholdPercent": "100", "imageMinimumGCAge": "1s",
	}, "")
	defer restart(t, before)
	pullUnused(t)
	steady, done := bind("steady", "sleep"), bind("done", "exit", "code=0")
	create(t, client, steady, done)
	runs(t, client, "steady")
	eventually(t, "a pod has ended, and all is down that it had", func() error { return down(t, client, "done") })
	if pressed := noPressure(t, client); pressed != nil {
		t.Fatal(pressed)
	}

	fill(t, 76)
	eventually(t, "the Node says that a disk is short", func() error {
		if err := noPressure(t, client); err == nil || !strings.Contains(err.Error(), "DiskPressure") {
			return fmt.Errorf("not short: %w", err)
		}
		return nil
	})
	eventually(t, "what nobody needs is gone, and the node is short of nothing", func() error {
		err := errors.Join(unusedIsGone(t), noContainerOf(t, "done"), noPressure(t, client))
		if err != nil {
			out, explainErr := exec.Command("/usr/bin/polylet", "explain", "node").CombinedOutput()
			err = errors.Join(err, explainErr, errors.New(string(out)))
		}
		return err
	})
	if err := errors.Join(phase(t, client, "steady", corev1.PodRunning), phase(t, client, "done", corev1.PodSucceeded)); err != nil {
		t.Error(err)
	}
	if len(events(t, client, "reason=EvictionThresholdMet")) == 0 {
		t.Error("no event EvictionThresholdMet")
	}
	out, err := exec.Command("/usr/bin/polylet", "explain", "node").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "imagefs.available") || !strings.Contains(string(out), "evicted nobody: after that enough is left") {
		t.Errorf("polylet explain node: %v\n%s", err, out)
	}

	// There is nothing more that nobody needs.
	create(t, client, bind("layer-hog", "take", fmt.Sprintf("mebibytes=%d", spare(t)>>20+10), "path=/file"))
	evicted(t, client, "layer-hog")
	eventually(t, "nothing is short any more", func() error { return noPressure(t, client) })
	if err := phase(t, client, "steady", corev1.PodRunning); err != nil {
		t.Error(err)
	}
	goes(t, client, "steady", "done", "layer-hog")
}

// onDisk gives the runtime a disk to itself until the test ends.
func onDisk(t *testing.T, device string) {
	t.Helper()
	again := func(change ...[]string) error {
		stop, start := [][]string{{"systemctl", "stop", "containerd.service"}}, [][]string{{"systemctl", "start", "containerd.service"}}
		return runAll(append(append(stop, change...), start...))
	}
	const config = "/etc/containerd/config.toml"
	plain, err := os.ReadFile(config)
	if err == nil {
		// Else a layer is freed only with the collection that comes after many changes.
		err = write(config, string(plain)+"[plugins.'io.containerd.gc.v1.scheduler']\n  deletion_threshold = 1\n")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := again([]string{"mkfs.ext4", "-q", "-F", device}, []string{"mount", device, runtimeRoot}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(write(config, string(plain)), again([]string{"umount", "--lazy", runtimeRoot})); err != nil {
			t.Error(err)
		}
	})
}

// pullUnused has the runtime pull an image of which the node is told nothing.
func pullUnused(t *testing.T) {
	t.Helper()
	r, err := registry.Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	image, err := random.Image(unusedSize, 1)
	host, name, _ := strings.Cut(unusedImage, "/")
	if err == nil {
		err = r.Push(t.Context(), name, image)
	}
	if err == nil {
		err = write(filepath.Join("/etc/containerd/certs.d", host, "hosts.toml"), fmt.Sprintf("[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", "http://"+r.Addr()))
	}
	if err == nil {
		_, err = runtimeapi.NewImageServiceClient(criClient(t)).PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: unusedImage}})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func unusedIsGone(t *testing.T) error {
	t.Helper()
	got, err := runtimeapi.NewImageServiceClient(criClient(t)).ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: unusedImage}})
	if err == nil && got.GetImage() != nil {
		err = errors.New("the image that nobody uses is there")
	}
	return err
}

// noContainerOf checks that the runtime has none of a pod.
func noContainerOf(t *testing.T, pod string) error {
	t.Helper()
	return noContainer(t, &runtimeapi.ContainerFilter{LabelSelector: map[string]string{"io.kubernetes.pod.name": pod}})
}

// down checks that a pod of no class has ended well and has no cgroup any more: before that
// its containers are not removed, whoever asks.
func down(t *testing.T, client kubernetes.Interface, name string) error {
	t.Helper()
	p, err := client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(cgroups, sliceOf("besteffort", p))); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("it has a cgroup (%v)", err)
	}
	return phase(t, client, name, corev1.PodSucceeded)
}

// fill puts a file of nobody's on the runtime's disk, so that it is used to percent.
func fill(t *testing.T, percent int64) {
	t.Helper()
	st := diskUse(t)
	used, all := int64(st.Blocks-st.Bfree)*st.Bsize, int64(st.Blocks-st.Bfree+st.Bavail)*st.Bsize
	want := all*percent/100 - used
	if want <= 0 {
		t.Fatalf("%d of %d bytes are used, more than %d%%", used, all, percent)
	}
	if err := run("fallocate", "--length", fmt.Sprint(want), filepath.Join(runtimeRoot, "ballast")); err != nil {
		t.Fatal(err)
	}
}

// spare is how many bytes can be taken of the runtime's disk until a quarter is left.
func spare(t *testing.T) int64 {
	t.Helper()
	st := diskUse(t)
	return int64(st.Bavail)*st.Bsize - int64(st.Blocks)*st.Bsize/4
}

func diskUse(t *testing.T) (st unix.Statfs_t) {
	t.Helper()
	if err := unix.Statfs(runtimeRoot, &st); err != nil {
		t.Fatal(err)
	}
	return st
}
