package certificate

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/polylet/polylet/internal/nodecert"
)

// A serving certificate is approved by a person, and a client's needs a token that is
// good: a node that has read one has no need of another.
func TestACertificateThatIsDamagedLaterIsWrittenAgainAsItWasRead(t *testing.T) {
	for name, damage := range map[string]func(link, file string) error{
		"cut short":   func(_, file string) error { return os.Truncate(file, 100) },
		"empty":       func(_, file string) error { return os.Truncate(file, 0) },
		"a directory": func(_, file string) error { return exchange(file, func() error { return os.Mkdir(file, 0o700) }) },
		"a circle":    func(link, _ string) error { return exchange(link, func() error { return os.Symlink(link, link) }) },
		"another key": func(_, file string) error {
			_, other, err := nodecert.Store{Dir: filepath.Dir(file), Prefix: "other"}.PendingKey()
			if err != nil {
				return err
			}
			pair, err := nodecert.Store{Dir: filepath.Dir(file), Prefix: nodecert.Client}.Read()
			if err != nil {
				return err
			}
			return os.WriteFile(file, append(pair.Cert, other...), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.start()
				first := w.now()
				file, err := os.Readlink(w.store.CurrentPath())
				if err != nil {
					t.Fatal(err)
				}
				w.approve(false)
				time.Sleep(time.Second)
				if err := damage(w.store.CurrentPath(), file); err != nil {
					t.Fatal(err)
				}
				// In the way of what is written.
				inTheWay := filepath.Join(w.store.Dir, "kubelet-client-updated.pem")
				if err := os.MkdirAll(filepath.Join(inTheWay, "x"), 0o755); err != nil {
					t.Fatal(err)
				}
				w.keeper.Changed()
				time.Sleep(time.Minute)
				w.wantWaits("it cannot be written anew", w.store.Dir)
				if err := os.RemoveAll(inTheWay); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				if leaf := w.now(); leaf == nil || !leaf.Equal(first) || w.waits() != "" || len(w.requests()) != 1 {
					t.Errorf("the certificate is %v, waits for %q, %d requests", leaf, w.waits(), len(w.requests()))
				}
				if !slices.Contains(w.seen(), "CertificateDamaged") {
					t.Errorf("events %v", w.seen())
				}
			})
		})
	}
}

// It may be of a cluster that the node has left.
func TestACertificateThatWasRemovedIsNotWrittenAgainOverADamagedOne(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.start()
		first := w.now()
		w.approve(false)
		if err := exchange(w.store.Dir, func() error { return os.Mkdir(w.store.Dir, 0o700) }); err != nil {
			t.Fatal(err)
		}
		w.keeper.Changed()
		synctest.Wait()
		if err := os.WriteFile(w.store.CurrentPath(), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.keeper.Changed()
		if leaf := w.now(); leaf != nil || !slices.Contains(w.seen(), "CertificateDamaged") {
			t.Errorf("the certificate is there: %v; events %v", leaf != nil && leaf.Equal(first), w.seen())
		}
	})
}

func TestACertificateThatAnAgentWasKilledOverIsNotAskedForAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.start()
		first := w.now()
		w.stop()
		if err := os.Rename(w.store.CurrentPath(), filepath.Join(w.store.Dir, "kubelet-client-updated.pem")); err != nil {
			t.Fatal(err)
		}
		w.start()
		if leaf := w.now(); leaf == nil || !leaf.Equal(first) || w.count() != 1 {
			t.Errorf("the certificate is %v, of %d", leaf, w.count())
		}
	})
}

func exchange(path string, with func() error) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return with()
}

func TestWhoWaitsForACertificateSaysWhatTheOneOfNowLacks(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.set(func() { w.want = ClientRequest("old-name") })
		w.start()
		w.now()
		w.stop()
		w.approve(false)
		w.set(func() { w.want = ClientRequest("n1") })
		w.start()
		time.Sleep(quiet + time.Second)
		w.wantWaits("waits for the approval of CSR", `it is for "system:node:old-name" and this node is "system:node:n1" (--hostname-override, or the hostname)`)
	})
}

func TestACertificateThatIsDamagedWhileAnotherIsWaitedForIsWrittenAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.signer.life = 10 * time.Hour
		w.start()
		first := w.now()
		w.approve(false)
		time.Sleep(9*time.Hour + 10*time.Minute)
		file, err := os.Readlink(w.store.CurrentPath())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(file, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookAgain + time.Second)
		if leaf := w.now(); leaf == nil || !leaf.Equal(first) || len(w.requests()) != 2 {
			t.Errorf("the certificate is %v, %d requests", leaf, len(w.requests()))
		}
		w.answer(certificatesv1.CertificateApproved)
		if leaf := w.now(); leaf.Equal(first) || w.waits() != "" {
			t.Errorf("it is not renewed; waits for %q", w.waits())
		}
	})
}

// Whoever copies a certificate over the old one has emptied the file first.
func TestACertificateThatIsJustBeingCopiedIsNotWrittenOver(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.start()
		first := w.now()
		w.approve(false)
		file, err := os.Readlink(w.store.CurrentPath())
		if err != nil {
			t.Fatal(err)
		}
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(file, 0); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, time.Time{}, time.Now()); err != nil {
			t.Fatal(err)
		}
		for range int(settled/time.Second) - 1 {
			w.keeper.Changed()
			time.Sleep(time.Second)
		}
		if got, err := os.Readlink(w.store.CurrentPath()); err != nil || got != file {
			t.Errorf("while it is being written the link is to %s, %v", got, err)
		}
		if err := os.WriteFile(file, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.keeper.Changed()
		if leaf := w.now(); leaf == nil || !leaf.Equal(first) || slices.Contains(w.seen(), "CertificateDamaged") {
			t.Errorf("the certificate is %v, events %v", leaf, w.seen())
		}
	})
}

// An approver is there within a second, and the new one would take the place of what is
// being copied.
func TestNoCertificateIsAskedForWhileOneIsJustBeingCopied(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.start()
		first := w.now()
		file, err := os.Readlink(w.store.CurrentPath())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(file, 0); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, time.Time{}, time.Now()); err != nil {
			t.Fatal(err)
		}
		w.keeper.Changed()
		time.Sleep(settled - time.Second)
		if n := w.count(); n != 1 {
			t.Errorf("%d were issued", n)
		}
		if got, err := os.Readlink(w.store.CurrentPath()); err != nil || got != file {
			t.Errorf("the link is to %s, %v", got, err)
		}
		time.Sleep(time.Second)
		if leaf := w.now(); leaf == nil || !leaf.Equal(first) || w.count() != 1 {
			t.Errorf("nobody has written it, and the certificate is %v, of %d", leaf, w.count())
		}
	})
}

// After a denial there is a pause of up to 15 minutes.
func TestWhatChangesInTheStoreIsSeenThoughARequestWasDenied(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.signer.life = 10 * time.Hour
		w.start()
		first := w.now()
		w.approve(false)
		time.Sleep(9*time.Hour + 10*time.Minute)
		w.answer(certificatesv1.CertificateDenied)
		time.Sleep(lookAgain + time.Second)
		w.wantWaits("was denied")
		file, err := os.Readlink(w.store.CurrentPath())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(file, 0); err != nil {
			t.Fatal(err)
		}
		w.keeper.Changed()
		if leaf := w.now(); leaf == nil || !leaf.Equal(first) {
			t.Errorf("damaged meanwhile, the certificate is %v", leaf)
		}
	})
}

func TestACertificateThatAnotherBringsAfterADenialEndsTheWait(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.start()
		w.now()
		w.stop()
		good, err := w.store.Read()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(w.store.CurrentPath()); err != nil {
			t.Fatal(err)
		}
		w.approve(false)
		w.start()
		time.Sleep(lookAgain)
		w.answer(certificatesv1.CertificateDenied)
		time.Sleep(lookAgain + time.Second)
		w.wantWaits("was denied")
		w.keeper.Changed() // nothing has
		if n := len(w.requests()); n != 2 {
			t.Errorf("%d requests", n)
		}
		if err := w.store.Write(good, time.Now()); err != nil {
			t.Fatal(err)
		}
		w.keeper.Changed()
		if got := w.waits(); got != "" {
			t.Errorf("there is a good one, and it waits for %q", got)
		}
	})
}

// Under systemd the directory is a mount of the service's own, of what was there at its start.
func TestADirectoryThatWasRemovedUnderTheServiceNeedsARestart(t *testing.T) {
	k := New(ClientConfig("/pki", true), Deps{})
	for err, want := range map[error]string{
		syscall.EROFS:  "systemctl restart polylet-nodestatus",
		syscall.ENOENT: "restart the service",
		syscall.EACCES: "to the user of nodestatus",
		syscall.ENOSPC: "free space",
	} {
		if got := k.unwritable(err); !strings.Contains(got, want) || !strings.Contains(got, "/pki") {
			t.Errorf("%v: %q, want it to say %q", err, got, want)
		}
	}
}
