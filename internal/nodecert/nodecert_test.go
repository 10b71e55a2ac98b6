package nodecert

import (
	"crypto/ecdsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/util/certificate"

	"github.com/polylet/polylet/internal/testkit/selfsigned"
)

// pair makes a self-signed certificate that ends at a time.
func pair(t testing.TB, name string, end time.Time) *Pair {
	t.Helper()
	p, err := Parse(selfsigned.PEM(t, &x509.Certificate{
		SerialNumber: big.NewInt(end.Unix()), Subject: pkix.Name{CommonName: name}, NotBefore: end.Add(-time.Hour), NotAfter: end,
	}))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func wantNow(t *testing.T, s Store, name string) {
	t.Helper()
	got, err := s.Read()
	if err != nil || got.Leaf.Subject.CommonName != name {
		t.Fatalf("the certificate of now is %v, %v; want %s", got, err, name)
	}
}

func TestAKubeletReadsWhatIsWrittenAndWhatAKubeletWroteIsRead(t *testing.T) {
	s := Store{Dir: t.TempDir(), Prefix: Client}
	if _, err := s.Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty directory: %v", err)
	}
	ours := pair(t, "ours", time.Now().Add(time.Hour))
	if err := s.Write(ours, time.Now()); err != nil {
		t.Fatal(err)
	}
	kubelets, err := certificate.NewFileStore(Client, s.Dir, s.Dir, "", "")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := kubelets.Current(); err != nil || got.Leaf.Subject.CommonName != "ours" || kubelets.CurrentPath() != s.CurrentPath() {
		t.Fatalf("a kubelet reads %v, %v", got, err)
	}
	target, err := os.Readlink(s.CurrentPath())
	if err != nil || !filepath.IsAbs(target) {
		t.Errorf("the link says %q, %v", target, err)
	}
	if info, err := os.Stat(target); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	theirs := pair(t, "theirs", time.Now().Add(time.Hour))
	if _, err := kubelets.Update(theirs.Cert, theirs.Key); err != nil {
		t.Fatal(err)
	}
	wantNow(t, s, "theirs")
}

// A kubelet removes the link before it gives the next one its name.
func TestWhatAKilledKubeletHadMadeReadyIsTheOneOfNow(t *testing.T) {
	s := Store{Dir: t.TempDir(), Prefix: Client}
	fresh := filepath.Join(s.Dir, "kubelet-client-updated.pem")
	if did, err := s.Recover(); did || err != nil {
		t.Errorf("an empty directory: %v, %v", did, err)
	}
	if err := s.Write(pair(t, "killed", time.Now().Add(time.Hour)), time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(s.CurrentPath(), fresh); err != nil {
		t.Fatal(err)
	}
	if did, err := s.Recover(); !did || err != nil {
		t.Errorf("%v, %v", did, err)
	}
	wantNow(t, s, "killed")
	if did, err := s.Recover(); did || err != nil {
		t.Errorf("a second time: %v, %v", did, err)
	}
	if err := errors.Join(os.Remove(s.CurrentPath()), os.Symlink(filepath.Join(s.Dir, "gone"), fresh)); err != nil {
		t.Fatal(err)
	}
	if did, err := s.Recover(); did || err != nil {
		t.Errorf("a link to nothing: %v, %v", did, err)
	}
	if _, err := s.Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestWhoeverReadsDuringWritesFindsACertificate(t *testing.T) {
	s := Store{Dir: t.TempDir(), Prefix: Client}
	p := pair(t, "x", time.Now().Add(time.Hour))
	if err := s.Write(p, time.Now()); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		var err error
		for i := 0; i < 100 && err == nil; i++ {
			err = s.Write(p, time.Now().Add(time.Duration(i)*time.Second))
		}
		done <- err
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
			if _, err := s.Read(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestFewOldFilesStayAndNeverGoesTheOneOfNow(t *testing.T) {
	s := Store{Dir: t.TempDir(), Prefix: Serving}
	start := time.Now()
	for i := range 12 {
		if err := s.Write(pair(t, "x", start.Add(time.Hour)), start.Add(time.Duration(i)*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.files(); len(got) != kept {
		t.Errorf("%d files stay", len(got))
	}
	// The clock was set back: the newest has the oldest name.
	if err := s.Write(pair(t, "set back", start.Add(time.Hour)), start.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	wantNow(t, s, "set back")
}

func TestADamagedFileIsSetAsideAndTheLastGoodOneTakesItsPlace(t *testing.T) {
	s := Store{Dir: t.TempDir(), Prefix: Client}
	start := time.Now()
	for i, name := range []string{"ended", "good", "damaged"} {
		if err := s.Write(pair(t, name, start.Add(time.Duration(i)*time.Hour)), start.Add(time.Duration(i)*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	damaged, _ := os.Readlink(s.CurrentPath())
	if err := os.Truncate(damaged, 300); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), s.CurrentPath()) {
		t.Errorf("read: %v", err)
	}
	good := func(leaf *x509.Certificate) bool { return leaf.NotAfter.After(start) }
	aside, now, err := s.Mend(func(leaf *x509.Certificate) bool {
		// A process that is killed meanwhile must not leave a link to nothing, which nobody mends.
		if _, err := os.Stat(s.CurrentPath()); err != nil {
			t.Errorf("before there is another: %v", err)
		}
		return good(leaf)
	})
	if err != nil || now == nil || now.Leaf.Subject.CommonName != "good" || !strings.HasPrefix(aside, damaged+".damaged-") {
		t.Fatalf("set aside as %q, now %v, %v", aside, now, err)
	}
	wantNow(t, s, "good")
	for _, file := range s.files() {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, now, err = s.Mend(good); err != nil || now != nil {
		t.Fatalf("nothing good is left: %v, %v", now, err)
	}
	if _, err := s.Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read: %v", err)
	}
}

func TestWhatIsNoFileIsNotWaitedFor(t *testing.T) {
	s := Store{Dir: t.TempDir(), Prefix: Client}
	if err := syscall.Mkfifo(s.CurrentPath(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(); !errors.Is(err, ErrDamaged) {
		t.Errorf("a pipe: %v", err)
	}
	large := Store{Dir: t.TempDir(), Prefix: Client}
	if err := os.WriteFile(large.CurrentPath(), make([]byte, longest+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := large.Read(); !errors.Is(err, ErrDamaged) {
		t.Errorf("a large file: %v", err)
	}
}

func TestAFileInTheLinksPlaceIsSetAside(t *testing.T) {
	s := Store{Dir: t.TempDir(), Prefix: Client}
	mine := pair(t, "by hand", time.Now().Add(time.Hour))
	if err := os.WriteFile(s.CurrentPath(), mine.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	wantNow(t, s, "by hand")
	if err := s.Write(pair(t, "new", time.Now().Add(time.Hour)), time.Now()); err != nil {
		t.Fatal(err)
	}
	wantNow(t, s, "new")
	if asides, _ := filepath.Glob(s.CurrentPath() + ".damaged-*"); len(asides) != 1 {
		t.Errorf("set aside: %v", asides)
	}
}

func TestTheKeyOfARequestOutlivesTheProcess(t *testing.T) {
	s := Store{Dir: t.TempDir(), Prefix: Client}
	first, firstPEM, err := s.PendingKey()
	if err != nil {
		t.Fatal(err)
	}
	again, againPEM, err := s.PendingKey()
	if err != nil || string(firstPEM) != string(againPEM) {
		t.Fatalf("after a restart there is another key: %v", err)
	}
	if info, err := os.Stat(s.keyPath()); err != nil || info.Mode() != 0o600 {
		t.Errorf("the key is %v, %v", info.Mode(), err)
	}
	if !first.Public().(*ecdsa.PublicKey).Equal(again.Public()) {
		t.Error("the keys differ")
	}
	if err := os.WriteFile(s.keyPath(), []byte("half of it"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, other, err := s.PendingKey(); err != nil || string(other) == string(firstPEM) {
		t.Errorf("a damaged key is not replaced: %v", err)
	}
	if err := s.DropPendingKey(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.keyPath()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the key stays: %v", err)
	}
	if err := s.DropPendingKey(); err != nil {
		t.Errorf("drop none: %v", err)
	}
}

func TestOnlyADirectoryOfAKubeletsOwnIsGivenAway(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("gives a directory to another user, which needs root")
	}
	const user = 60899
	dir := t.TempDir() + "/pki"
	if err := Prepare(dir, user); err != nil {
		t.Fatal(err)
	}
	owner := func(dir string) uint32 {
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Uid
	}
	if owner(dir) != user {
		t.Errorf("the owner is %d", owner(dir))
	}
	others := t.TempDir()
	for _, name := range []string{"kubelet.crt", "kubelet-client-current.pem", "kubelet-client.key.tmp", ".kubelet.key.tmp-1", "kubelet-server-2026-01-01-00-00-00.pem"} {
		if err := os.WriteFile(others+"/"+name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Prepare(others, user); err != nil || owner(others) != user {
		t.Errorf("a kubelet's directory: %v, owner %d", err, owner(others))
	}
	var cluster string
	for _, name := range []string{"ca.key", "kubelet-client-ca.crt", "kubelet-server-2026.pem", ".kubelet-client-ca.crt.tmp-1"} {
		cluster = t.TempDir()
		if err := os.WriteFile(cluster+"/"+name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Prepare(cluster, user); err == nil || !strings.Contains(err.Error(), name) || owner(cluster) != 0 {
			t.Errorf("a directory with %s: %v, owner %d", name, err, owner(cluster))
		}
	}
	link, empty := t.TempDir()+"/link", t.TempDir()
	if err := os.Symlink(empty, link); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(link, user); err == nil || owner(empty) != 0 {
		t.Errorf("a link is followed: %v", err)
	}
	if err := os.Chmod(others, 0o500); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(others, user); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(others); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its owner may do %v, %v", info.Mode(), err)
	}
}

// Both may come later: the directory would be given away while it is empty.
func TestADirectoryInWhichAKubeconfigBelongsIsNotGivenAway(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("gives a directory to another user, which needs root")
	}
	base := t.TempDir()
	if err := errors.Join(os.Mkdir(base+"/pki", 0o755), os.Symlink(base+"/pki", base+"/link"),
		os.Symlink("pki/later.conf", base+"/into"), os.Symlink(base+"/into", base+"/twice"), os.Symlink("round", base+"/round")); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]bool{
		"": true, base + "/kubelet.conf": true, base + "/pki.conf": true, base + "/other/pki/kubelet.conf": true,
		base + "/pki/kubelet.conf": false, base + "/pki/later/kubelet.conf": false, base + "/link/kubelet.conf": false, base + "/into": false, base + "/twice": false, base + "/round": true, base + "/other/../pki/kubelet.conf": false,
	} {
		if err := os.Chown(base+"/pki", 0, -1); err != nil {
			t.Fatal(err)
		}
		err := Prepare(base+"/pki", 60899, "", file)
		info, statErr := os.Stat(base + "/pki")
		if statErr != nil {
			t.Fatal(statErr)
		}
		owner := info.Sys().(*syscall.Stat_t).Uid
		if (err == nil) != want || (owner == 60899) != want || err != nil && !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, the owner is %d", file, err, owner)
		}
	}
}

// Whoever has the directory can lead a link in it elsewhere.
func TestADirectoryThroughWhichAnothersFileIsFoundIsNotGivenAway(t *testing.T) {
	base := t.TempDir()
	if err := errors.Join(os.MkdirAll(base+"/pki/sub", 0o755), os.Mkdir(base+"/etc", 0o755), os.Symlink(base+"/pki", base+"/link"),
		os.Symlink("../etc", base+"/pki/out"), os.Symlink(base+"/etc", base+"/pki/sub/out"), os.Symlink("out/ca.crt", base+"/pki/ca.crt"),
		os.Symlink(base+"/link/out", base+"/etc/around")); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]bool{
		base + "/etc/ca.crt": false, base + "/link/../etc/ca.crt": false, base + "/etc/../link": true, base + "/pki": true,
		base + "/pki/out/ca.crt": true, base + "/link/out/ca.crt": true, base + "/pki/sub/out/ca.crt": true,
		base + "/pki/ca.crt": true, base + "/etc/around/ca.crt": true, base + "/etc/../pki/out/ca.crt": true,
	} {
		if got := liesBelow(base+"/pki", file); got != want {
			t.Errorf("%s: %v", file, got)
		}
	}
}

func FuzzAFileIsACertificateWithItsKeyOrDamaged(f *testing.F) {
	p := pair(f, "x", time.Unix(1<<31, 0))
	f.Add(p.PEM())
	f.Add(p.PEM()[:300])
	f.Add(append([]byte("before\n"), p.PEM()...))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Parse(data, data)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("%v", err)
			}
			return
		}
		again, err := Parse(got.PEM(), got.PEM())
		if err != nil || !again.Leaf.Equal(got.Leaf) {
			t.Errorf("what is kept of it is another: %v", err)
		}
	})
}

func TestLinksThatLeadInACircleAreReplaced(t *testing.T) {
	s := Store{Dir: t.TempDir(), Prefix: Client}
	for _, path := range []string{s.CurrentPath(), s.keyPath()} {
		if err := os.Symlink(path, path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Read(); !errors.Is(err, ErrDamaged) {
		t.Errorf("read: %v", err)
	}
	if _, now, err := s.Mend(nil); now != nil || err != nil {
		t.Errorf("mend: %v, %v", now, err)
	}
	if _, err := s.Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read after that: %v", err)
	}
	if _, _, err := s.PendingKey(); err != nil {
		t.Errorf("the key: %v", err)
	}
}

// What could not be read again would be asked for again and again.
func TestNoCertificateIsTakenThatIsTooLongToBeRead(t *testing.T) {
	p := pair(t, "x", time.Now().Add(time.Hour))
	var chain []byte
	for len(chain) <= longest {
		chain = append(chain, p.Cert...)
	}
	if _, err := Parse(chain, p.Key); !errors.Is(err, ErrDamaged) {
		t.Errorf("parse: %v", err)
	}
}

// A process that is killed while it writes leaves a file with a key in it each time.
func TestWhatWritesThatWereCutShortHaveLeftIsRemovedByTheNext(t *testing.T) {
	s := Store{Dir: t.TempDir(), Prefix: Client}
	left := []string{".kubelet-client-2026-01-01-00-00-00.pem.tmp-123", ".kubelet-client.key.tmp.tmp-456"}
	theirs := []string{".kubelet-server-2026-01-01-00-00-00.pem.tmp-123", ".kubelet-client-ca.crt.tmp-1"}
	for _, name := range append(left, theirs...) {
		if err := os.WriteFile(filepath.Join(s.Dir, name), []byte("key"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Write(pair(t, "x", time.Now().Add(time.Hour)), time.Now()); err != nil {
		t.Fatal(err)
	}
	for i, names := range [][]string{left, theirs} {
		for _, name := range names {
			if _, err := os.Stat(filepath.Join(s.Dir, name)); (err == nil) != (i == 1) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestADirectoryThatIsNamedFromHereIsLinkedFromAnywhere(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("pki", 0o755); err != nil {
		t.Fatal(err)
	}
	s, start := Store{Dir: "pki", Prefix: Client}, time.Now()
	for i, name := range []string{"good", "damaged"} {
		if err := s.Write(pair(t, name, start.Add(time.Hour)), start.Add(time.Duration(i)*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	damaged, _ := os.Readlink(s.CurrentPath())
	if err := os.Truncate(damaged, 0); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Mend(func(*x509.Certificate) bool { return true }); err != nil {
		t.Fatal(err)
	}
	wantNow(t, s, "good")
}
