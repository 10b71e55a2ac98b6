package allocation

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/resources/resize"
)

// fixture was written by a kubelet 1.36.3 (test/node, TestPodsOfAKubelet…, with
// POLYLET_WRITE_KUBELET_STATE).
const (
	fixture    = "testdata/allocated_pods_state"
	fixturePod = types.UID("5c5bdfc0-2335-4d61-b8a0-2528b41a03d7")
)

func TestWhatAKubeletAllocatedIsTakenOverOnce(t *testing.T) {
	own := filepath.Join(t.TempDir(), "allocations.json")
	s := New(own, nil)
	if err := s.Load(); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Adopt(fixture); n != 2 || err != nil {
		t.Fatalf("%d pods, %v", n, err)
	}
	e, ok := s.Get(fixturePod)
	app := e.Containers["app"]
	if cpu := app.Requests[v1.ResourceCPU]; !ok || cpu.String() != "100m" || e.Pod != nil || e.Generation != 0 {
		t.Errorf("taken over: %+v", e)
	}
	// The next life has it from its own file, and does not ask again.
	next := New(own, nil)
	if err := next.Load(); err != nil {
		t.Fatal(err)
	}
	if n, err := next.Adopt(fixture); n != 0 || err != nil {
		t.Errorf("a second time: %d pods, %v", n, err)
	}
	if again, ok := next.Get(fixturePod); !ok || !again.Equal(e.Allocation) {
		t.Errorf("in the next run: %+v", again)
	}
}

func TestThePodsOwnResourcesAreTakenOverToo(t *testing.T) {
	raw := []byte(`{"data":"{\"entries\":{\"u\":{\"ContainerResources\":{\"c\":{}},\"PodLevelResources\":{\"limits\":{\"cpu\":\"2\"}}}}}","checksum":0}`)
	raw = bytes.Replace(raw, []byte(`"checksum":0`), []byte(`"checksum":`+checksumOf(t, raw)), 1)
	found, _, err := parseKubelet(raw)
	if err != nil {
		t.Fatal(err)
	}
	if cpu := found.Entries["u"].PodLevelResources.Limits[v1.ResourceCPU]; cpu.String() != "2" {
		t.Errorf("%+v", found)
	}
}

// checksumOf is the right checksum of a file with a wrong one.
func checksumOf(t *testing.T, raw []byte) string {
	t.Helper()
	_, _, err := parseKubelet(raw)
	if err == nil {
		t.Fatal("the checksum is not looked at")
	}
	_, want, _ := strings.Cut(err.Error(), "that of its text is ")
	return want
}

func TestADamagedFileOfAKubeletIsNamedWithWhatToDo(t *testing.T) {
	good, err := os.ReadFile(fixture)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"half of it":       good[:len(good)/2],
		"a changed number": bytes.Replace(good, []byte("100m"), []byte("900m"), 1),
		"something else":   []byte("[]"),
		"empty":            nil,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "allocated_pods_state")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			s := New(filepath.Join(dir, "allocations.json"), nil)
			if err := s.Load(); err != nil {
				t.Fatal(err)
			}
			_, err := s.Adopt(path)
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "move the file away") {
				t.Errorf("error %v", err)
			}
			if _, ok := s.Get(fixturePod); ok {
				t.Error("something of it is used")
			}
			if left, err := os.ReadFile(path); err != nil || !bytes.Equal(left, content) {
				t.Errorf("the kubelet's file was touched: %v", err)
			}
		})
	}
}

func TestNothingIsWrongWithoutAFileOfAKubelet(t *testing.T) {
	dir := t.TempDir()
	s := New(filepath.Join(dir, "allocations.json"), nil)
	if n, err := s.Adopt(filepath.Join(dir, "none")); n != 0 || err != nil {
		t.Errorf("%d pods, %v", n, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "allocations.json")); err == nil {
		t.Error("a file was written for nothing")
	}
}

func FuzzFileOfAKubelet(f *testing.F) {
	good, err := os.ReadFile(fixture)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"data":"{}","checksum":1}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		found, _, err := parseKubelet(raw)
		if err != nil && found.Entries != nil {
			t.Errorf("%d pods and an error: %v", len(found.Entries), err)
		}
		for uid, k := range found.Entries {
			a := resize.From(k.ContainerResources, k.PodLevelResources)
			if text, err := a.Encode(); err != nil {
				t.Errorf("pod %s: %v", uid, err)
			} else if back, ok := resize.Decode(text); !ok || !back.Equal(a) {
				t.Errorf("pod %s: %s is read as another", uid, text)
			}
		}
	})
}
