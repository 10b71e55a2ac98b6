package imagegc

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
)

func TestADiskThatCannotBeFreedIsToldOnTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, usual, fakecri.Config{}, 10)
		r.setFail(true)
		time.Sleep(5*time.Minute + time.Second)
		events := r.seen()
		if len(events) != 1 || !strings.HasPrefix(events[0], "FreeDiskSpaceFailed: Insufficient free disk space on the node's image filesystem (100% of 1000Mi used). Failed to free") {
			t.Fatalf("events %q after one failure", events)
		}
		time.Sleep(5 * time.Minute)
		if events = r.seen(); len(events) != 3 || !strings.HasPrefix(events[2], "ImageGCFailed: ") {
			t.Fatalf("events %q after two", events)
		}
		r.setFail(false)
		time.Sleep(5 * time.Minute)
		if got := strings.Fields(r.there()); len(got) != 8 || len(r.seen()) != 3 {
			t.Errorf("left %s, events %q after removals work again", got, r.seen())
		}
	})
}

func TestAnImageThatAContainerHasMountedStaysThoughItsNameIsAnothers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Config{MaxAge: time.Minute, HighPercent: 100}, fakecri.Config{}, 3)
		id := func(i int) string {
			found, err := r.cri.ImageFor(t.Context(), &runtimeapi.ImageSpec{Image: image(i)})
			if err != nil {
				t.Fatal(err)
			}
			return found.GetId()
		}
		// What the pod's volume names was i1 when it was resolved, and is not any more.
		r.wants("u", v1.PodRunning, v1.PodSpec{
			Containers: []v1.Container{{Image: "i0"}},
			Volumes:    []v1.Volume{{VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "data"}}}},
		})
		r.mounts("i0", id(1))
		time.Sleep(10 * time.Minute)
		if got := r.there(); got != "0 1" {
			t.Errorf("left %q, want the container's image and the one that it has mounted", got)
		}
	})
}

func TestADiskWithoutCapacityIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, usual, fakecri.Config{}, 1)
		r.slots.Store(0)
		time.Sleep(5*time.Minute + time.Second)
		if events := r.seen(); len(events) != 1 || events[0] != "InvalidDiskCapacity: invalid capacity 0 on image filesystem" {
			t.Errorf("events %q", events)
		}
	})
}

func TestNamesOfOneImageAreEqual(t *testing.T) {
	id := strings.Repeat("ab", 32)
	cases := map[string]string{
		"nginx": "docker.io/library/nginx:latest", "docker.io/library/nginx": "docker.io/library/nginx:latest",
		"quay.io/a/b:v1": "quay.io/a/b:v1", "sha256:" + id: id, id: id, "": "",
		"nginx:v1@sha256:" + id: "docker.io/library/nginx@sha256:" + id, "Not A Name": "Not A Name",
	}
	for name, want := range cases {
		if got := canonical(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}

func TestUsageAndWhatIsMissing(t *testing.T) {
	cases := map[string]struct {
		disk    Disk
		used    int
		missing uint64 // for 80 %
	}{
		"full":             {Disk{1000, 0}, 100, 200},
		"half":             {Disk{1000, 500}, 50, 0},
		"at the threshold": {Disk{1000, 150}, 85, 50},
		"more than all":    {Disk{1000, 2000}, 0, 0},
		"a large one":      {Disk{1 << 60, 1 << 57}, 88, (1<<60)/5 - 1<<57},
	}
	for name, c := range cases {
		used, missing := c.disk.usedPercent(), c.disk.missing(80)
		if diff := int64(missing) - int64(c.missing); used != c.used || diff > 1<<10 || diff < -(1<<10) {
			t.Errorf("%s: used %d %%, missing %d; want %d, %d", name, used, missing, c.used, c.missing)
		}
	}
}

func TestAnImageWithoutAnIDIsToldOnceAndLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Config{}, fakecri.Config{}, 1)
		images := &nameless{Client: r.cri}
		c := New(Config{MaxAge: time.Hour}, Deps{Runtime: images, Pods: r.pods, Containers: r.table, Events: r, Sources: r, Disk: r.disk})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		for i, on := range []bool{false, true, false, true} {
			images.on.Store(on)
			time.Sleep(time.Hour)
			if got, want := len(r.seen()), []int{0, 1, 1, 2}[i]; got != want {
				t.Fatalf("after %d hours: events %q, want %d", i+1, r.seen(), want)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := r.seen()[0]; !strings.HasPrefix(got, "InvalidImageID: ") || !strings.Contains(got, "lost:1") {
			t.Errorf("it says %q", got)
		}
		if len(images.removed) != 1 || images.removed[0] == "" {
			t.Errorf("removed %q, want the one that has an id", images.removed)
		}
	})
}
