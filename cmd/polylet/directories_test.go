package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/inotify"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/supervise"
)

// anew are the ways in which a directory is another than before: dir is where the
// CA lies, base above it.
var anew = map[string]func(base, dir string) error{
	"made after the start": func(string, string) error { return nil },
	"removed":              func(_, dir string) error { return os.RemoveAll(dir) },
	"moved away":           func(base, dir string) error { return os.Rename(dir, base+"/old") },
	"above it moved away":  func(base, _ string) error { return os.Rename(base+"/etc", base+"/old") },
	"above it removed":     func(base, _ string) error { return os.RemoveAll(base + "/etc") },
	"a link elsewhere": func(base, dir string) error {
		return errors.Join(os.Mkdir(base+"/other", 0o755), os.Rename(dir, base+"/old"), os.Symlink(base+"/other", dir))
	},
	"another moved there": func(base, dir string) error {
		return errors.Join(os.Mkdir(base+"/other", 0o755), os.Rename(dir, base+"/old"), os.Rename(base+"/other", dir))
	},
}

// Two rotations each: the first may be copied only because the directory is another.
func TestCertificatesInADirectoryThatIsMadeAnewReachTheGateway(t *testing.T) {
	for name, change := range anew {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := t.TempDir()
			dir, target := base+"/etc/kubernetes/pki", base+"/gateway"
			ca, copied := dir+"/ca.crt", target+"/client-ca.crt"
			if err := os.Mkdir(target, 0o750); err != nil {
				t.Fatal(err)
			}
			later := name == "made after the start"
			if !later {
				put(t, ca, authority("before"))
			}
			loaded := load(t, "--cert-dir="+base+"/own", "--client-ca-file="+ca, "--hostname-override=n1", "--node-ip=10.0.0.1")
			missed := make(chan struct{}, 100)
			log := funcr.New(func(_, args string) {
				if strings.Contains(args, `"directory"=`) {
					missed <- struct{}{}
				}
			}, funcr.Options{})
			c := newCredentials(log, loaded, target, supervise.Identity{Drop: true, GID: os.Getgid()})
			if _, err := c.write(t.Context()); err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() { c.follow(t.Context()); close(done) }()
			t.Cleanup(func() { <-done })
			if later {
				<-missed
			} else {
				put(t, ca, authority("watched"))
				becomes(t, copied, authority("watched"))
			}
			if err := change(base, dir); err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{authority("the first rotation"), authority("the second rotation")} {
				put(t, ca, text)
				becomes(t, copied, text)
			}
		})
	}
}

// A certificate made at once would stand in the way of the one that is put back:
// cp -r copies into a directory that is there.
func TestAServingCertificateThatIsRemovedIsPutBackByWhoeverRemovedIt(t *testing.T) {
	base := t.TempDir()
	pki, target := base+"/pki", base+"/gateway"
	if err := os.Mkdir(target, 0o750); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{}, 100)
	log := funcr.New(func(_, args string) {
		if strings.Contains(args, "cannot be copied") {
			gone <- struct{}{}
		}
	}, funcr.Options{})
	loaded := load(t, "--cert-dir="+pki, "--hostname-override=n1", "--node-ip=10.0.0.1")
	c := newCredentials(log, loaded, target, supervise.Identity{Drop: true, GID: os.Getgid()})
	if _, err := c.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { c.follow(t.Context()); close(done) }()
	t.Cleanup(func() { <-done })
	if err := os.Rename(pki, base+"/backup"); err != nil {
		t.Fatal(err)
	}
	<-gone
	if _, err := os.Stat(pki); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is made anew: %v", err)
	}
	if _, err := os.Stat(target + "/tls.crt"); err != nil {
		t.Errorf("the gateway's copy went too: %v", err)
	}
	putPair := func(dir, name string) string {
		pair := selfSigned(t, name)
		put(t, dir+"/kubelet.key", string(pair.Key))
		put(t, dir+"/kubelet.crt", string(pair.Cert))
		return string(pair.Cert)
	}
	restored := putPair(base+"/backup", "restored")
	if err := os.Rename(base+"/backup", pki); err != nil {
		t.Fatal(err)
	}
	becomes(t, target+"/tls.crt", restored)
	becomes(t, target+"/tls.crt", putPair(pki, "next"))
}

func TestAConfigurationInADirectoryThatIsMadeAnewIsHandedOut(t *testing.T) {
	for name, change := range map[string]func(base string) error{
		"removed":    func(base string) error { return os.RemoveAll(base + "/etc/polylet") },
		"moved away": func(base string) error { return os.Rename(base+"/etc", base+"/old") },
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			config := func(pods string) string {
				return "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: " + pods + "\n"
			}
			file := put(t, base+"/etc/polylet/config.yaml", config("1"))
			loaded := load(t, "--config="+file, "--hostname-override=n1")
			seen := make(chan struct{}, 100)
			log := funcr.New(func(_, args string) {
				if strings.Contains(args, "is not valid") {
					seen <- struct{}{}
				}
			}, funcr.Options{})
			var next *kubeletconfig.Loaded
			changed := make(chan error, 1)
			go func() {
				var err error
				next, err = nextConfiguration(t.Context(), loaded, log)
				changed <- err
			}()
			if err := change(base); err != nil {
				t.Fatal(err)
			}
			<-seen // the change is dealt with
			put(t, file, config("2"))
			select {
			case err := <-changed:
				if err != nil || next.Config.MaxPods != 2 {
					t.Errorf("%+v, %v", next, err)
				}
			case <-time.After(30 * time.Second):
				t.Error("the configuration that was put there is not seen")
			}
		})
	}
}

// told waits until a change is seen; inotify, so no bubble.
func told(t *testing.T, d *directories) {
	t.Helper()
	for {
		select {
		case event := <-d.events():
			if d.saw(event) {
				return
			}
		case <-time.After(30 * time.Second):
			t.Fatal("nothing is told")
		}
	}
}

func TestADirectoryThatGoesAndComesIsSaidOnce(t *testing.T) {
	var said []string
	d := newDirectories(funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{}))
	defer d.close()
	dir := t.TempDir() + "/a/b"
	d.want(dir)
	for range 3 {
		d.look()
	}
	if len(said) != 1 || !strings.Contains(said[0], "not there") || !strings.Contains(said[0], dir) {
		t.Fatalf("said %q", said)
	}
	put(t, dir+"/x", "")
	for len(said) < 2 {
		told(t, d)
	}
	d.look()
	if len(said) != 2 || !strings.Contains(said[1], "there now") {
		t.Errorf("said %q", said)
	}
}

func TestWhatCannotBeWatchedIsTriedAgainAndSaidOnce(t *testing.T) {
	var said []string
	d := newDirectories(funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{}))
	defer d.close()
	d.want(t.TempDir())
	watcher, err := inotify.New()
	if err != nil {
		t.Fatal(err)
	}
	d.watcher = watcher
	if err := watcher.Close(); err != nil { // as if there were no watches left
		t.Fatal(err)
	}
	for range 2 {
		d.look()
		if !d.again.Stop() {
			t.Fatal("it is not tried again")
		}
	}
	if len(said) != 1 || !strings.Contains(said[0], "within a minute") {
		t.Errorf("said %q", said)
	}
	d.watcher = nil
	d.look()
	// The kernel does not tell of everything.
	if !d.again.Stop() || len(said) != 2 || !strings.Contains(said[1], "can be watched again") {
		t.Errorf("said %q, or nothing is looked at again", said)
	}
}

func TestOnlyWhatMattersInADirectoryIsTold(t *testing.T) {
	base := t.TempDir()
	put(t, base+"/drops/10.conf", "")
	d := newDirectories(klog.Background())
	defer d.close()
	d.want(base, "config.yaml")
	d.want(base + "/drops")
	d.look()
	for name, want := range map[string]bool{
		base + "/config.yaml": true, base + "/state": false, base + "/drops/10.conf": true, filepath.Dir(base) + "/config.yaml": false, "//x": false,
	} {
		if got := d.saw(inotify.Event{Path: name}); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	put(t, base+"/state", "")
	put(t, base+"/drops/20.conf", "")
	told(t, d)
	d.lost(inotify.ErrLost)
	put(t, base+"/config.yaml", "")
	told(t, d)
}

// Whoever reads what the kernel says reads no more after an error.
func TestAnotherTakesThePlaceOfAWatcherThatFailed(t *testing.T) {
	dir := t.TempDir()
	d := newDirectories(klog.Background())
	defer d.close()
	d.want(dir)
	d.look()
	if err := d.watcher.Close(); err != nil { // it has ended, as after an error
		t.Fatal(err)
	}
	d.lost(errors.New("read file events: input/output error"))
	select {
	case <-d.again.C:
	case <-time.After(30 * time.Second):
		t.Fatal("nothing is looked at again soon")
	}
	d.look()
	put(t, dir+"/x", "")
	told(t, d)
}

// kubeadm's kubeconfig and bootstrap kubeconfig are in one directory.
func TestAllThatIsWantedOfADirectoryIsTold(t *testing.T) {
	base := t.TempDir()
	d := newDirectories(klog.Background())
	defer d.close()
	for range 2 {
		d.want(base, "kubelet.conf")
		d.want(base, "bootstrap-kubelet.conf")
	}
	d.look()
	for name, want := range map[string]bool{"kubelet.conf": true, "bootstrap-kubelet.conf": true, "x": false} {
		if got := d.saw(inotify.Event{Path: base + "/" + name}); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if n := len(d.wanted[base]); n != 2 {
		t.Errorf("%d names for two", n)
	}
	d.want(base)
	d.want(base, "kubelet.conf")
	d.look()
	if !d.saw(inotify.Event{Path: base + "/x"}) {
		t.Error("all of it is wanted, and something is not told")
	}
}

// Above a directory that is wanted there may be one in which others write all the time.
func TestOfADirectoryThatOnlyLeadsThereWhatIsWrittenIsNotTold(t *testing.T) {
	base := t.TempDir()
	put(t, base+"/dir/config.yaml", "a")
	d := newDirectories(klog.Background())
	defer d.close()
	d.want(base+"/dir", "config.yaml")
	d.look()
	put(t, base+"/dir/config.yaml", "b")
	told(t, d)
	put(t, base+"/log", "one line")
	put(t, base+"/log", "another")
	put(t, base+"/dir/config.yaml", "c")
	for about := map[string]int{}; ; {
		select {
		case event := <-d.events():
			if about[event.Path]++; about[base+"/log"] > 1 {
				t.Fatal("what is written beside the way is told, not only that it is there")
			}
			if event.Path == base+"/dir/config.yaml" && about[base+"/log"] == 1 {
				return
			}
		case <-time.After(30 * time.Second):
			t.Fatal("nothing is told")
		}
	}
}

func TestTheWayToADirectoryHasAllThatMayChangeIt(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	put(t, base+"/real/pki/ca.crt", "")
	if err := os.Symlink("real", base+"/link"); err != nil {
		t.Fatal(err)
	}
	put(t, base+"/file", "")
	w := wayTo(map[string][]string{base + "/link/pki": nil, base + "/real": {"a", "b"}, base + "/none/pki": nil, base + "/file/pki": nil})
	for _, step := range []string{base, base + "/link", base + "/real", base + "/real/pki", base + "/none", base + "/file"} {
		if !w.steps[step] {
			t.Errorf("%s may change unseen", step)
		}
	}
	if !w.gone[base+"/none/pki"] || !w.gone[base+"/file/pki"] || len(w.gone) != 2 {
		t.Errorf("gone: %v", w.gone)
	}
	for _, place := range []string{"/", filepath.Dir(base), base, base + "/real", base + "/real/pki"} {
		if _, ok := w.places[place]; !ok {
			t.Errorf("%s is not watched", place)
		}
	}
	if p := w.places[base+"/real/pki"]; !p.matters("x") {
		t.Error("what is in the directory behind the link does not matter")
	}
	if p := w.places[base+"/real"]; !p.matters("b") || p.matters("c") || !slices.Equal(p.names, []string{"a", "b"}) {
		t.Errorf("what matters: %v", p.names)
	}
	if _, err := os.Stat(base + "/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("looking has made something")
	}
}

// Under systemd handout starts while the client CA is not there (a restore, a mount that
// is late): it is copied when it comes, but the gateway is not told where the copy is.
func TestAClientCAThatComesAfterTheHandoutReachesTheGatewaysFlags(t *testing.T) {
	base, err := os.MkdirTemp("", "h")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	dir, ca := filepath.Join(base, "sock"), base+"/etc/pki/ca.crt"
	file := put(t, base+"/etc/config.yaml", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nauthentication: {x509: {clientCAFile: "+ca+"}}\n")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	cmd := newRootCommand()
	cmd.SetArgs([]string{"handout", "--follow", "--config=" + file, "--socket-dir=" + dir, "--cert-dir=" + base + "/own", "--root-dir=" + base + "/root", "--socket-group=60900",
		"--gateway-user=60901", "--probes-user=60902", "--hostname-override=n1"})
	go func() { done <- cmd.ExecuteContext(ctx) }()
	defer func() { cancel(); t.Logf("handout: %v", <-done) }()
	becomes(t, dir+"/gateway/args.env", "--tls-cert-file")
	put(t, ca, authority("the CA"))
	becomes(t, dir+"/gateway/client-ca.crt", authority("the CA")) // this works
	end := time.Now().Add(30 * time.Second)
	for time.Now().Before(end) {
		args, _ := os.ReadFile(dir + "/gateway/args.env")
		if strings.Contains(string(args), "--client-ca-file="+dir) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	args, _ := os.ReadFile(dir + "/gateway/args.env")
	t.Errorf("the gateway's flags never name the copy: %s", args)
}
