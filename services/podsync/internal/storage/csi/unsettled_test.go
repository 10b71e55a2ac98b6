package csi

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/testkit/eventually"
	"github.com/polylet/polylet/services/podsync/internal/metrics"
)

// failingFor is a disk that cannot be taken away for a while: at first for one reason, then for
// another.
type failingFor struct{ began time.Time }

func (failingFor) Left() ([]v1.UniqueVolumeName, error) { return nil, nil }

func (d failingFor) Settle(context.Context, v1.UniqueVolumeName) (bool, error) {
	switch after := time.Since(d.began); {
	case after < 10*time.Minute:
		return false, errors.New("it is in use")
	case after < 4*time.Hour:
		return false, errors.New("it is held by process 4711")
	}
	return false, nil
}

// TestAVolumeThatCannotBeUnstagedIsSaidAgainAndShownUntilItCan: a pod of another node waits for
// it, and no pod of this one has it whose story would tell.
func TestAVolumeThatCannotBeUnstagedIsSaidAgainAndShownUntilItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := New(Config{}, Deps{Node: &nodeObject{}, Disks: failingFor{began}})
		var lines []string
		c.life = klog.NewContext(c.life, funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
		c.SettleSoon("kubernetes.io/iscsi/portal:iqn:0")
		synctest.Wait()
		shown := func(why string) {
			t.Helper()
			all := c.Unsettled()
			if len(all) != 1 {
				t.Fatalf("shown are %+v", all)
			}
			v := all[0]
			if v.Plugin != "kubernetes.io/iscsi" || v.Driver != "" || v.Handle != "portal:iqn:0" || v.Why != why || v.Advice == "" || !v.Since.Equal(began) || !v.Retry.After(time.Now()) {
				t.Errorf("shown is %+v", v)
			}
		}
		shown("it is in use")
		time.Sleep(3*time.Hour + 30*time.Minute)
		shown("it is held by process 4711")
		c.work.Wait()
		if all := c.Unsettled(); len(all) != 0 {
			t.Errorf("shown is still %+v", all)
		}
		of := func(text string) (n int) {
			for _, line := range lines {
				if strings.Contains(line, text) && strings.Contains(line, `"volume"="kubernetes.io/iscsi/portal:iqn:0"`) {
					n++
				}
			}
			return n
		}
		// The second from minute 10 to 240 or so, again after each hour.
		if len(lines) != 6 || of(`"err"="it is in use"`) != 1 || of(`"err"="it is held by process 4711"`) != 4 || of("is settled") != 1 || of(`"since"=`) != 5 || of(`"advice"=`) != 5 {
			t.Errorf("it says:\n%s", strings.Join(lines, "\n"))
		}
		c.end()
	})
}

// TestAVolumeWhoseDriverIsAwayIsShownWithWhereItIsStagedAndCounted.
func TestAVolumeWhoseDriverIsAwayIsShownWithWhereItIsStagedAndCounted(t *testing.T) {
	for operation, device := range map[string]bool{"unmount_device": false, "unmap_device": true} {
		t.Run(operation, func(t *testing.T) {
			b := newStaging(t, nil)
			reg := prometheus.NewRegistry()
			b.deps.Metrics = metrics.New(reg)
			have, end, path, pv := b.setUp, b.end, filepath.Join(b.staging(), globalMount), ""
			if device {
				have, end, path, pv = b.mapDeviceOf, b.unmap, b.devices("staging/pv"), "pv"
			}
			if err := have(t, "uid-1"); err != nil {
				t.Fatal(err)
			}
			var refused atomic.Uint64
			b.fault("NodeUnstageVolume", func(context.Context) error {
				refused.Add(1)
				return status.Error(codes.Internal, "device is busy")
			})
			end(t, "uid-1")
			shows := func(why, advice string) {
				t.Helper()
				var all []Unsettled
				eventually.True(t, "what fails is not shown: "+why, func() bool {
					all = b.Unsettled()
					return len(all) == 1 && strings.Contains(all[0].Why, why)
				})
				if v := all[0]; v.Plugin != "kubernetes.io/csi" || v.Driver != driverOf || v.Handle != handleOf || v.Path != path || v.Device != device || v.PV != pv || !strings.Contains(v.Advice, advice) {
					t.Errorf("shown is %+v", v)
				}
			}
			shows("device is busy", "log of the volume's driver")
			b.Deregister(b.plugin)
			b.settleSoon(volumeID{driverOf, handleOf})
			shows("not found in the list of registered CSI drivers", "start the driver")
			if failed := isMigrated(t, reg, operation, "fail-unknown")["false"]; failed <= refused.Load() {
				t.Errorf("%d failures are counted, and the driver alone has refused %d times", failed, refused.Load())
			}
			b.fault("NodeUnstageVolume", nil)
			b.register(t)
			b.nothing(t)
			if all := b.Unsettled(); len(all) != 0 {
				t.Errorf("shown is still %+v", all)
			}
			if isMigrated(t, reg, operation, "success")["false"] == 0 {
				t.Error("that it is unstaged is not counted")
			}
		})
	}
}

// TestAVolumeThatAPodHasAgainIsShownNoMoreAsOneWithout.
func TestAVolumeThatAPodHasAgainIsShownNoMoreAsOneWithout(t *testing.T) {
	b := newStaging(t, nil)
	if err := b.setUp(t, "uid-1"); err != nil {
		t.Fatal(err)
	}
	b.fault("NodeUnstageVolume", func(context.Context) error { return status.Error(codes.Internal, "device is busy") })
	b.end(t, "uid-1")
	eventually.True(t, "what fails is not shown", func() bool { return len(b.Unsettled()) == 1 })
	if err := b.setUp(t, "uid-2"); err != nil {
		t.Fatal(err)
	}
	if all := b.Unsettled(); len(all) != 0 { // before it is tried again
		t.Errorf("it is shown though a pod has it: %+v", all)
	}
	b.fault("NodeUnstageVolume", nil)
	b.end(t, "uid-2")
	b.nothing(t)
}

func TestVolumesThatCannotBeUnstagedAreShownInOneOrder(t *testing.T) {
	c := New(Config{}, Deps{})
	want := []volumeID{{"", "kubernetes.io/fc/w"}, {"", "kubernetes.io/iscsi/a"}, {"a", "2"}, {"b", "1"}, {"b", "2"}}
	for _, i := range []int{3, 0, 4, 2, 1} {
		c.notSettled(want[i], errors.New("x"), time.Now(), time.Now())
	}
	var got []string
	for _, v := range c.Unsettled() {
		got = append(got, v.Plugin+" "+v.Driver+" "+v.Handle)
	}
	if !slices.Equal(got, []string{"kubernetes.io/csi a 2", "kubernetes.io/csi b 1", "kubernetes.io/csi b 2", "kubernetes.io/fc  w", "kubernetes.io/iscsi  a"}) {
		t.Errorf("%q", got)
	}
}

func TestWhatADriverSaysOfAVolumeThatItDoesNotUnstageCanBeSent(t *testing.T) {
	c := New(Config{}, Deps{})
	c.notSettled(volumeID{driverOf, handleOf}, errors.New("\xff"+strings.Repeat("ä", 1<<20)), time.Now(), time.Now())
	if why := c.Unsettled()[0].Why; !utf8.ValidString(why) || len(why) > mostOfAWhy+10 {
		t.Errorf("%d bytes are kept, which can be sent: %v", len(why), utf8.ValidString(why))
	}
}
