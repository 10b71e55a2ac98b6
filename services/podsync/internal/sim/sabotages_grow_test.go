package sim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// growing is a scenario without faults of a pod whose volume becomes larger.
func growing(seed int64) *scenario {
	s := with(onDisk(1, 0), 25*time.Second, "grow the volume", func(w *world) { w.growDisk("shared", 2*firstSize) })(seed)
	s.csi.drivers[0].grows = true
	return s
}

// asDevice is a scenario without faults of a pod with a device, which is deleted after a
// time if that is not zero.
func asDevice(deleted time.Duration) func(int64) *scenario {
	return func(seed int64) *scenario {
		s := &scenario{noisy: 30 * time.Second, byName: map[string]*subject{}, calm: true}
		a := &driverPlan{name: "a.csi.test", stages: true, attach: true}
		s.csi = &csiPlan{drivers: []*driverPlan{a}, claims: map[string]*driverPlan{}}
		s.device("raw", a, time.Second)
		grace := int64(2)
		sub := newPod(deviceUser, "p0", &grace, rand.New(rand.NewPCG(uint64(seed), 2)))
		sub.withDevice("raw")
		s.put(sub)
		s.add(2*time.Second, "create p0", func(w *world) { w.create(sub) })
		if deleted > 0 {
			s.add(deleted, "delete p0", func(w *world) { w.remove(sub, -1) })
		}
		return s
	}
}

// instead has a call to drivers end with an error.
func instead(method string, code codes.Code) func(*world, string, any, func() error) error {
	return func(_ *world, m string, _ any, do func() error) error {
		if m == method {
			return status.Error(code, "sabotage")
		}
		return do()
	}
}

func TestEveryBrokenPromiseOfVolumesThatGrowAndOfDevicesIsFound(t *testing.T) {
	asksTheJudge(t)
	for _, tc := range []struct {
		name string
		shot sabotage
		want string
	}{
		{"a volume that grows", sabotage{scenario: growing}, ""},
		{"a volume that does not grow", sabotage{scenario: growing, csi: instead("NodeExpandVolume", codes.Unavailable)}, "was asked to have 2147483648 bytes and has 0"},
		{"a claim that says a size that its volume has not", sabotage{scenario: growing, csi: except("NodeExpandVolume")}, "says that its volume has 2147483648 bytes, and it has 1073741824"},
		{"a volume that grows more than was asked for", sabotage{scenario: growing, csi: func(_ *world, _ string, req any, do func() error) error {
			if q, is := req.(*csi.NodeExpandVolumeRequest); is {
				q.CapacityRange.RequiredBytes++
			}
			return do()
		}}, "for which nobody asked"},
		{"a volume that grows where it is not", sabotage{scenario: growing, csi: func(_ *world, _ string, req any, do func() error) error {
			if q, is := req.(*csi.NodeExpandVolumeRequest); is {
				q.VolumePath = filepath.Dir(q.GetVolumePath())
			}
			return do()
		}}, "where it is not"},

		{"a device", sabotage{scenario: asDevice(0)}, ""},
		{"a device that goes with its pod", sabotage{scenario: asDevice(20 * time.Second)}, ""},
		{"a device over a restart of the machine", sabotage{scenario: with(asDevice(0), 20*time.Second, "reboot", func(w *world) { w.reboot(false) })}, ""},
		{"a start without the device", sabotage{scenario: asDevice(0), cri: func(w *world, _ string, req, _ any, do func() error) error {
			if _, is := req.(*runtimeapi.StartContainerRequest); is {
				for _, f := range w.deviceFiles("a.csi.test", "h-raw") {
					w.must(os.Remove(f))
				}
			}
			return do()
		}}, "is not there"},
		{"a device that is published before it is staged", sabotage{scenario: asDevice(0), csi: except("NodeStageVolume")}, "was asked for before it was staged"},
		{"a device that stays", sabotage{scenario: asDevice(20 * time.Second), csi: func(w *world, m string, req any, do func() error) error {
			err := do()
			if m == "NodeUnpublishVolume" {
				ghost := filepath.Join(w.allDevices(), "publish", "of-ghost", "uid")
				w.must(os.MkdirAll(filepath.Dir(ghost), 0o755))
				w.must(os.WriteFile(ghost, []byte("csi a.csi.test "+volumeOf(req)), 0o600))
			}
			return err
		}}, "was asked for while it is mounted on"},
		{"a device that goes while a container uses it", sabotage{scenario: asDevice(0), cri: again("StartContainer", func(w *world, _ any) {
			for _, f := range w.deviceFiles("a.csi.test", "h-raw") {
				asks(w, "a.csi.test", "NodeUnpublishVolume", &csi.NodeUnpublishVolumeRequest{VolumeId: "h-raw", TargetPath: f}, &csi.NodeUnpublishVolumeResponse{})
			}
		})}, "was asked for while 1 containers of its pod run"},
		{"what a device was in stays", sabotage{scenario: asDevice(20 * time.Second), csi: func(w *world, m string, req any, do func() error) error {
			err := do()
			if m == "NodeUnstageVolume" {
				w.must(os.MkdirAll(filepath.Join(w.allDevices(), "publish", "of-ghost"), 0o755))
			}
			return err
		}}, "the directory of a device that no pod has"},
	} {
		t.Run(tc.name, func(t *testing.T) { finds(t, tc.shot, tc.want) })
	}
}

func TestWhatIsKeptOfVolumesIsMendedAndDamageThatStaysIsFound(t *testing.T) {
	asksTheJudge(t)
	for pick := range uint64(4) { // each spoils other files
		t.Run(fmt.Sprint("damaged ", pick), func(t *testing.T) {
			damaged := with(onDisk(2, 0), 25*time.Second, "damage", func(w *world) { w.damageDisks(pick) })
			finds(t, sabotage{scenario: damaged}, "")
			ending := with(onDisk(2, 35*time.Second), 25*time.Second, "damage", func(w *world) { w.damageDisks(pick) })
			finds(t, sabotage{scenario: ending}, "")
		})
	}
	finds(t, sabotage{scenario: onDisk(1, 0), cri: again("StartContainer", func(w *world, _ any) {
		_, place := publishedAt(w, "b.csi.test")
		w.must(os.WriteFile(filepath.Join(filepath.Dir(place), "vol_data.json"), []byte(`{"half`), 0o600))
	})}, "and what lies beside it says")
}
