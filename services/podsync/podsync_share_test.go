package podsync

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/services/podsync/internal/housekeeping/smallfiles"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

// As the executable makes it, which says nothing of mounts.
func TestTheKernelsMountsAreTheUsualOnes(t *testing.T) {
	conn, err := fakecri.New(fakecri.Config{}).Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cfg := bare(t.TempDir())
	cfg.Node.Standalone = true
	s, err := New(cfg, Deps{Runtime: conn, Images: conn, HostsGuard: smallfiles.Off{}})
	if err != nil {
		t.Fatal(err)
	}
	if changed, err := s.deps.Mounter.Share(s.cfg.RootDir); err == nil || changed {
		t.Errorf("a directory that is not there: changed %v, %v", changed, err)
	}
}

func TestThatMountsCannotBeSharedIsSaidAndStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := mount.NewFake()
		asked := ""
		refused.Fail = func(call, target string) error {
			if call == "share" {
				asked = target
				return errors.New("operation not permitted")
			}
			return nil
		}
		h := &healths{said: map[string]string{}}
		s := startWith(t, fakecri.New(fakecri.Config{Images: []string{"registry.local/hello:1"}}), nil, h, refused)
		time.Sleep(time.Minute)
		synctest.Wait()
		if asked != s.cfg.RootDir || s.phase() != v1.PodRunning {
			t.Errorf("asked for %q, the pod is %s", asked, s.phase())
		}
		if said := h.get("mount propagation"); !strings.Contains(said, "operation not permitted") || !strings.Contains(said, "mount --make-rshared") {
			t.Errorf("health says %q", said)
		}
	})
}

func TestMountsThatTheRootDirectoryCoversAreSaidAndStopNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		covers := mount.NewFake()
		covers.Fail = func(call, _ string) error {
			if call == "share" {
				return fmt.Errorf("what was mounted on /volume is %w: device busy", mount.ErrCovered)
			}
			return nil
		}
		h := &healths{said: map[string]string{}}
		s := startWith(t, fakecri.New(fakecri.Config{Images: []string{"registry.local/hello:1"}}), nil, h, covers)
		time.Sleep(time.Minute)
		if s.phase() != v1.PodRunning {
			t.Errorf("the pod is %s", s.phase())
		}
		if said := h.get("mount propagation"); !strings.Contains(said, "/volume") || !strings.Contains(said, "booted") || strings.Contains(said, "no shared mount") {
			t.Errorf("health says %q", said)
		}
	})
}
