package node_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/random"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/polylet/polylet/test/harness/images"
	"github.com/polylet/polylet/test/harness/registry"
)

const (
	// imageDisk is the size of the disk that the images lie on, in bytes.
	imageDisk = 600 << 20
	// bigImage is the size of an image that nobody uses; it lies there packed
	// and unpacked.
	bigImage = 60 << 20
	// aPass is what a pass of the collection may take to come: they are five
	// minutes apart.
	aPass = 8 * time.Minute
)

// The images have a small disk of their own, so that the thresholds are reached
// for real.
func TestAFullImageDiskIsFreedOfImagesThatNobodyUses(t *testing.T) {
	if os.Getenv("POLYLET_LONG_TESTS") == "" {
		t.Skip("waits for three collections of images, which are five minutes apart; make soak runs it")
	}
	older, newer := registry.LocalName+"/older:v1", registry.LocalName+"/newer:v1"
	h := build(t, plan{noRuntime: true, within: 35 * time.Minute, overrides: map[string]any{
		"imageGCHighThresholdPercent": 50, "imageGCLowThresholdPercent": 40, "imageMinimumGCAge": "1s",
	}, prepare: func(h *house) {
		h.must(unix.Mount("images", h.inst.Path("root"), "tmpfs", 0, fmt.Sprintf("size=%d", imageDisk)))
		h.must(h.runtime.Process.Start(h.ctx))
		for _, name := range []string{"older:v1", "newer:v1"} {
			image, err := random.Image(bigImage, 1)
			h.must(err)
			h.must(h.images.Push(h.ctx, name, image))
		}
		h.pullBehindTheNode(older)
	}})
	h.create(webApp("user"))
	h.waitReady("user", time.Minute)
	h.pullBehindTheNode(newer)

	h.fillImageDisk(55)
	h.eventually(aPass, "the image that was there first goes", func() error { return h.imageGone(older) })
	// The runtime lets go of the image first and of its bytes then.
	h.eventually(time.Minute, "the disk is used to the low threshold", func() error {
		percent := h.imageDiskPercent()
		return boolError(percent <= 40, "used to %d%%", percent)
	})
	h.wantImages(newer, images.TestApp, images.Pause)
	h.eventually(time.Minute, "the metric counts it", func() error { return h.counted("space", "1") })
	if n := h.nodeEvents("FreeDiskSpaceFailed") + h.nodeEvents("ImageGCFailed"); n != 0 {
		t.Errorf("%d events of a failure, but enough was freed", n)
	}

	h.fillImageDisk(90)
	h.eventually(aPass, "there is not enough to remove, and the Node says so", func() error {
		return errors.Join(h.imageGone(newer), boolError(h.nodeEvents("FreeDiskSpaceFailed") > 0, "no event FreeDiskSpaceFailed"))
	})
	h.wantImages(images.TestApp, images.Pause)
	h.eventually(aPass, "the second failure in a row is told on the Node", func() error {
		return boolError(h.nodeEvents("ImageGCFailed") > 0, "no event ImageGCFailed")
	})
	h.must(h.counted("space", "2"))
	if p, err := h.pod("user"); err != nil || !isReady(p) {
		t.Errorf("the pod whose image is used: %v, %v", err, describe(p))
	}
}

// fillImageDisk puts a file on the images' disk so that it is used to percent.
func (h *house) fillImageDisk(percent int64) {
	h.Helper()
	ballast := h.inst.Path("root", "ballast")
	if err := os.Remove(ballast); !errors.Is(err, os.ErrNotExist) {
		h.must(err)
	}
	var st unix.Statfs_t
	h.must(unix.Statfs(filepath.Dir(ballast), &st))
	used := int64(st.Blocks-st.Bavail) * st.Bsize
	want := int64(st.Blocks)*st.Bsize*percent/100 - used
	if want <= 0 {
		h.Fatalf("the images use %d bytes, more than %d%% of their disk", used, percent)
	}
	h.must(os.WriteFile(ballast, make([]byte, want), 0o600))
}

func (h *house) imageDiskPercent() int {
	h.Helper()
	var st unix.Statfs_t
	h.must(unix.Statfs(h.inst.Path("root"), &st))
	return int((st.Blocks - st.Bavail) * 100 / st.Blocks)
}

func (h *house) imageGone(name string) error {
	h.Helper()
	here := h.imagesHere()
	return boolError(!slices.Contains(here, name), "present are %s", here)
}

func (h *house) wantImages(names ...string) {
	h.Helper()
	here := h.imagesHere()
	for _, want := range names {
		if !slices.Contains(here, want) {
			h.Errorf("%s is gone; present are %s", want, here)
		}
	}
}

// counted checks kubelet_image_garbage_collected_total.
func (h *house) counted(reason, want string) error {
	h.Helper()
	body, err := h.nodeAPI("/metrics")
	if err != nil {
		return err
	}
	line := regexp.MustCompile(`(?m)^kubelet_image_garbage_collected_total\{reason="` + reason + `"\} (\S+)$`).FindStringSubmatch(body)
	return boolError(len(line) == 2 && line[1] == want, "the metric's line is %q, want %s", line, want)
}

// nodeEvents is how often an event of a reason was recorded on the Node.
func (h *house) nodeEvents(reason string) (n int32) {
	h.Helper()
	events, err := h.cluster.Client.CoreV1().Events(metav1.NamespaceDefault).List(h.ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
	h.must(err)
	for _, e := range events.Items {
		if e.InvolvedObject.Kind == "Node" && e.Type == corev1.EventTypeWarning {
			n += max(1, e.Count)
		}
	}
	return n
}
