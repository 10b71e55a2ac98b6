package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// onDisk is a scenario without faults of pods that share a volume which is staged and
// attached, one after the other, each with one of its own that is neither; the pods are
// deleted after a time if that is not zero.
func onDisk(pods int, deleted time.Duration) func(int64) *scenario {
	return func(seed int64) *scenario {
		s := &scenario{noisy: 30 * time.Second, byName: map[string]*subject{}, calm: true}
		a := &driverPlan{name: "a.csi.test", stages: true, attach: true}
		b := &driverPlan{name: "b.csi.test"}
		s.csi = &csiPlan{drivers: []*driverPlan{a, b}, claims: map[string]*driverPlan{"shared": a}}
		s.add(time.Second, "make and bind the claim", func(w *world) { w.makeDisk("shared") })
		for i := range pods {
			grace := int64(2)
			sub := newPod(diskUser, fmt.Sprint("p", i), &grace, rand.New(rand.NewPCG(uint64(seed), 2)))
			sub.withDisk("shared")
			sub.withInline("b.csi.test")
			s.put(sub)
			s.add(time.Duration(2+i)*time.Second, "create "+sub.pod.Name, func(w *world) { w.create(sub) })
			if deleted > 0 {
				s.add(deleted+time.Duration(i)*time.Second, "delete "+sub.pod.Name, func(w *world) { w.remove(sub, -1) })
			}
		}
		return s
	}
}

// besideAHungDriver is a scenario of a pod that waits for a driver which hangs, and of one
// with a volume of another driver.
func besideAHungDriver(seed int64) *scenario {
	s := with(onDisk(1, 0), 0, "driver a hangs", func(w *world) { w.disks.drivers[0].hang(25 * time.Second) })(seed)
	s.csi.drivers[0].hangs = true
	grace := int64(2)
	sub := newPod(diskUser, "other", &grace, rand.New(rand.NewPCG(uint64(seed), 6)))
	sub.withInline("b.csi.test")
	s.put(sub)
	s.acts = append(s.acts, act{5 * time.Second, "create other", func(w *world) { w.create(sub) }})
	return s
}

// endsBesideAHungDriver is a scenario of a pod that ends while one of its drivers hangs.
func endsBesideAHungDriver(seed int64) *scenario {
	s := with(onDisk(1, 20*time.Second), 19*time.Second, "driver b hangs", func(w *world) { w.disks.drivers[1].hang(time.Minute) })(seed)
	s.csi.drivers[1].hangs = true
	return s
}

// twice has podsync make a call to drivers once more.
func twice(method string) func(*world, string, any, func() error) error {
	return func(_ *world, m string, _ any, do func() error) error {
		err := do()
		if m == method && err == nil {
			err = do()
		}
		return err
	}
}

// publishedAt is where the newest pod has its volume of a driver.
func publishedAt(w *world, driver string) (volume, place string) {
	for _, m := range w.mounts.Mounts() {
		if of := strings.Fields(w.mounts.Source(m)); len(of) == 3 && of[1] == driver && strings.HasSuffix(m, "/mount") {
			volume, place = of[2], m
		}
	}
	return volume, place
}

// asks has podsync ask a driver for something more.
func asks(w *world, driver, method string, req, reply any) {
	conn := &diskConn{life: w.life, path: w.disks.of(driver).socket.path, closed: make(chan struct{})}
	_ = conn.Invoke(context.Background(), "/csi.v1.Node/"+method, req, reply)
}

func takesBack(w *world, driver string) {
	volume, place := publishedAt(w, driver)
	asks(w, driver, "NodeUnpublishVolume", &csi.NodeUnpublishVolumeRequest{VolumeId: volume, TargetPath: place}, &csi.NodeUnpublishVolumeResponse{})
}

func unstages(w *world, driver string) {
	for _, m := range w.mounts.Mounts() {
		if of := strings.Fields(w.mounts.Source(m)); len(of) == 3 && of[1] == driver && strings.HasPrefix(m, w.stagings()) {
			asks(w, driver, "NodeUnstageVolume", &csi.NodeUnstageVolumeRequest{VolumeId: of[2], StagingTargetPath: m}, &csi.NodeUnstageVolumeResponse{})
			return
		}
	}
}

// except drops a call to drivers, as if it had been made.
func except(method string) func(*world, string, any, func() error) error {
	return func(_ *world, m string, _ any, do func() error) error {
		if m == method {
			return nil
		}
		return do()
	}
}

func TestEveryBrokenPromiseOfADriversVolumesIsFound(t *testing.T) {
	asksTheJudge(t)
	for _, tc := range []struct {
		name string
		shot sabotage
		want string
	}{
		{"nothing is wrong", sabotage{scenario: onDisk(2, 0)}, ""},
		{"nothing is wrong with what ends", sabotage{scenario: onDisk(2, 15*time.Second)}, ""},
		{"drivers that die and come back elsewhere", sabotage{scenario: with(onDisk(2, 20*time.Second), 10*time.Second, "kill the drivers", func(w *world) {
			w.disks.drivers[0].kill(20*time.Second, true, 10*time.Second)
			w.disks.drivers[1].kill(20*time.Second, false, 0)
		})}, ""},
		{"the machine reboots", sabotage{scenario: with(onDisk(2, 0), 20*time.Second, "reboot", func(w *world) { w.reboot(false) })}, ""},

		{"a volume that is staged twice", sabotage{scenario: onDisk(1, 0), csi: twice("NodeStageVolume")}, "/globalmount was asked for again"},
		{"a volume that is published twice", sabotage{scenario: onDisk(1, 0), csi: twice("NodePublishVolume")}, "/mount was asked for again"},
		{"a mount over another", sabotage{scenario: onDisk(1, 0), csi: func(w *world, m string, req any, do func() error) error {
			if m == "NodeStageVolume" {
				_ = do()
				d := w.disks.of("a.csi.test")
				return d.config().Mount(volumeOf(req), placeOf(req), false)
			}
			return do()
		}}, "is the second one there"},
		{"two calls for one volume at once", sabotage{scenario: onDisk(1, 0), csi: func(w *world, m string, _ any, do func() error) error {
			if m == "NodePublishVolume" {
				w.disks.drivers[1].hang(time.Second)
				other := make(chan error, 1)
				go func() { other <- do() }()
				defer func() { <-other }()
			}
			return do()
		}}, "was asked for during NodePublishVolume"},
		{"a volume that goes while a container uses it", sabotage{scenario: onDisk(1, 0), cri: again("StartContainer", func(w *world, _ any) {
			takesBack(w, "b.csi.test")
		})}, "was asked for while 1 containers of its pod run"},
		{"a volume that goes before its sandbox", sabotage{scenario: onDisk(1, 20*time.Second), cri: func(w *world, m string, _, _ any, do func() error) error {
			if m == "StopPodSandbox" {
				takesBack(w, "b.csi.test")
			}
			return do()
		}}, "was asked for before its pod's sandbox was stopped"},
		{"a volume that comes back after its end", sabotage{scenario: onDisk(1, 20*time.Second), csi: func(w *world, m string, req any, do func() error) error {
			err := do()
			if m == "NodeUnpublishVolume" && !strings.HasPrefix(volumeOf(req), "h-") {
				asks(w, "b.csi.test", "NodePublishVolume", &csi.NodePublishVolumeRequest{VolumeId: volumeOf(req), TargetPath: placeOf(req), VolumeCapability: &csi.VolumeCapability{
					AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
				}}, &csi.NodePublishVolumeResponse{})
			}
			return err
		}}, "was asked for after it had been taken back"},
		{"a volume that is unstaged while a pod has it", sabotage{scenario: onDisk(2, 0), cri: again("StartContainer", func(w *world, _ any) {
			unstages(w, "a.csi.test")
		})}, "was asked for while it is mounted on"},
		{"a volume that is published before it is staged", sabotage{scenario: onDisk(1, 0), csi: except("NodeStageVolume")}, "was asked for before it was staged"},
		{"a volume that stays published", sabotage{scenario: onDisk(1, 20*time.Second), csi: except("NodeUnpublishVolume")}, "is still there"},
		{"a volume that stays staged", sabotage{scenario: onDisk(1, 20*time.Second), csi: except("NodeUnstageVolume")}, "for no pod"},
		{"a volume that is used before the Node says so", sabotage{scenario: onDisk(1, 0), csi: func(w *world, m string, _ any, do func() error) error {
			if m == "NodeStageVolume" {
				w.attacher.uses(nil)
			}
			return do()
		}}, "was asked for before the Node says that it is in use"},
		{"a volume that is used before it is attached", sabotage{scenario: onDisk(1, 0), csi: func(w *world, m string, _ any, do func() error) error {
			if m == "NodeStageVolume" {
				w.judge.attached(w.scenario.csi.drivers[0].onNode("shared"), false)
			}
			return do()
		}}, "was asked for, and it is not attached"},
		{"a volume that is in use no more before it is unstaged", sabotage{scenario: onDisk(1, 20*time.Second), csi: func(w *world, m string, _ any, do func() error) error {
			if m == "NodeUnstageVolume" {
				w.attacher.uses(nil)
			}
			return do()
		}}, "the Node does not say any more that volume"},
		{"a pod that does not wait for another's driver", sabotage{scenario: besideAHungDriver}, ""},
		{"a pod that waits for another's driver", sabotage{scenario: besideAHungDriver, csi: func(_ *world, m string, _ any, do func() error) error {
			if m == "NodePublishVolume" {
				time.Sleep(20 * time.Second) // as if it had waited
			}
			return do()
		}}, "whom did it wait for?"},
		{"a volume that does not wait at its pod's end for another's driver", sabotage{scenario: endsBesideAHungDriver}, ""},
		{"a volume that waits at its pod's end for another's driver", sabotage{scenario: endsBesideAHungDriver, csi: func(_ *world, m string, req any, do func() error) error {
			if m == "NodeUnpublishVolume" && strings.HasPrefix(volumeOf(req), "h-") {
				time.Sleep(20 * time.Second) // as if it had waited
			}
			return do()
		}}, "whose volume did it wait for?"},
		{"a start before a volume is published", sabotage{scenario: onDisk(1, 0), cri: func(w *world, _ string, req, _ any, do func() error) error {
			if _, ok := req.(*runtimeapi.StartContainerRequest); ok {
				_, place := publishedAt(w, "b.csi.test")
				w.must(w.mounts.Unmount(place))
			}
			return do()
		}}, "is not published"},
		{"what a driver was to stage in stays", sabotage{scenario: onDisk(1, 20*time.Second), csi: func(w *world, m string, req any, do func() error) error {
			err := do()
			if m == "NodeUnstageVolume" {
				dir := filepath.Join(filepath.Dir(filepath.Dir(placeOf(req))), "ghost")
				w.must(os.MkdirAll(dir, 0o755))
				w.must(os.WriteFile(filepath.Join(dir, "vol_data.json"), []byte(volumeOf(req)), 0o600))
			}
			return err
		}}, "the directory of a volume that no pod has"},
	} {
		t.Run(tc.name, func(t *testing.T) { finds(t, tc.shot, tc.want) })
	}
}
