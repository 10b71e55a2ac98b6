package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/nodecert"
	"github.com/polylet/polylet/internal/supervise"
	"github.com/polylet/polylet/internal/turn"
	"github.com/polylet/polylet/internal/wake"
)

// settle is how long changes of files may go on before they are copied: a
// certificate and its key come in two steps.
const settle = 200 * time.Millisecond

// credentials are the copies of what the gateway needs and may not read where
// it lies: the serving certificate and the client CA, and never the kubeconfig
// or what it names: nodestatus asks the apiserver for the gateway. They lie in a
// directory that only root and the gateway's group can open, and follow their
// originals.
type credentials struct {
	log    klog.Logger
	loaded atomic.Pointer[kubeletconfig.Loaded]
	dir    string
	gid    int
	active bool

	// turns are at the copies, and at what is known of them: the disk may be slow.
	turns   turn.Turns
	sources map[string]bool
	names   map[string]bool   // of the copies
	failed  map[string]string // why an original could not be copied, as last said
	changed wake.Signal
}

func newCredentials(log klog.Logger, loaded *kubeletconfig.Loaded, dir string, who supervise.Identity) *credentials {
	c := &credentials{
		log: log, dir: dir, gid: who.GID, active: who.Drop,
		sources: map[string]bool{}, names: map[string]bool{}, failed: map[string]string{}, changed: wake.New(),
	}
	c.loaded.Store(loaded)
	return c
}

// write brings the copies up to date and returns the flags that name them. A
// source that is missing is logged: the gateway then says itself what it cannot do,
// and finds the copy at a later start.
func (c *credentials) write(context.Context) ([]string, error) {
	c.look()
	if err := c.ensure(); err != nil {
		return nil, err
	}
	return c.copyAll()
}

// ensure makes what has to be there when the gateway starts. Later it does not:
// who has removed it may be about to put another there.
func (c *credentials) ensure() error {
	cert, key := c.loaded.Load().ServingFiles()
	if c.loaded.Load().WaitsForServing() {
		_ = os.MkdirAll(filepath.Dir(cert), 0o755) // whoever gives it to nodestatus says why not
		return nil
	}
	return ensureServing(c.log, c.loaded.Load(), cert, key)
}

// copyAll is write of what is there.
func (c *credentials) copyAll() ([]string, error) {
	defer c.turns.Take(c.dir)()
	var flags []string
	pairs := []copied{{"--client-ca-file", c.loaded.Load().Config.Authentication.X509.ClientCAFile, "client-ca.crt", nodecert.ReadCertificates}}
	if c.loaded.Load().WaitsForServing() {
		c.tell("--cert-dir", c.loaded.Load().Flags.CertDir, c.serving())
		flags = append(flags, "--cert-dir="+c.dir)
	} else {
		cert, key := c.loaded.Load().ServingFiles()
		readCert := func(string) ([]byte, error) { return half(cert, key, func(p *nodecert.Pair) []byte { return p.Cert }) }
		readKey := func(string) ([]byte, error) { return half(cert, key, func(p *nodecert.Pair) []byte { return p.Key }) }
		pairs = append(pairs, copied{"--tls-cert-file", cert, "tls.crt", readCert}, copied{"--tls-private-key-file", key, "tls.key", readKey})
	}
	for _, p := range pairs {
		if p.source == "" {
			continue
		}
		// Named in any case: it may come later, and the original is closed to the gateway.
		flags = append(flags, p.flag+"="+filepath.Join(c.dir, p.name))
		c.tell(p.flag, p.source, c.copy(p))
	}
	return flags, nil
}

// tell logs once why an original could not be copied.
func (c *credentials) tell(flag, source string, err error) {
	switch {
	case err == nil:
		delete(c.failed, source)
	case c.failed[source] != err.Error():
		c.failed[source] = err.Error()
		c.log.Error(err, "A file that the gateway needs cannot be copied; it goes on with the last copy, and where a certificate was named does not start without one", "flag", flag, "file", source)
	}
}

// serving copies the certificate that nodestatus gets from the apiserver. Until
// it has one there is nothing to copy, and the gateway waits for the file.
func (c *credentials) serving() error {
	store := nodecert.Store{Dir: c.loaded.Load().Flags.CertDir, Prefix: nodecert.Serving}
	name := filepath.Base(store.CurrentPath())
	c.watch(store.CurrentPath())
	c.names[name] = true
	// A certificate and its key, and nothing else: nodestatus, whose directory this is,
	// could have the link lead to another file.
	pair, err := store.Read()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, nodecert.ErrDamaged) {
		return nil // nodestatus says so, and mends it
	}
	if err == nil {
		_, err = c.put(name, pair.PEM())
	}
	if err != nil {
		return fmt.Errorf("copy the serving certificate for the gateway: %w", err)
	}
	return nil
}

// copied is a file of which the gateway gets a copy: the flag and the name of the copy,
// and how the original is read: certificates and the key of one only, for the way to it may
// lead through --cert-dir, which nodestatus owns, and from there anywhere.
type copied struct {
	flag, source, name string
	read               func(path string) ([]byte, error)
}

// half is one half of a certificate with its key, and nothing of any other file.
func half(cert, key string, of func(*nodecert.Pair) []byte) ([]byte, error) {
	pair, err := nodecert.ReadPair(cert, key)
	if err != nil {
		return nil, err
	}
	return of(pair), nil
}

func (c *credentials) copy(p copied) error {
	c.watch(p.source)
	c.names[p.name] = true
	data, err := p.read(p.source)
	if err != nil {
		return err
	}
	_, err = c.put(p.name, data)
	return err
}

// copyMode is that of all copies; their group is the service's.
const copyMode = 0o640

// put writes a copy unless it is there already, and is the gateway's: one that an
// agent left behind whose gateway had another user could not be read.
func (c *credentials) put(name string, data []byte) (string, error) {
	path := filepath.Join(c.dir, name)
	if old, err := os.ReadFile(path); err == nil && slices.Equal(old, data) && isCopyFor(path, c.gid) {
		return path, nil
	}
	return path, fsatomic.WriteFileOwned(path, data, copyMode, -1, c.gid)
}

func isCopyFor(path string, gid int) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != copyMode {
		return false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(owner.Gid) == gid && int(owner.Uid) == os.Geteuid()
}

// dropOthers removes from the gateway's copies what is none of them.
func (c *credentials) dropOthers() error {
	defer c.turns.Take(c.dir)()
	return dropOthers(c.dir, slices.Collect(maps.Keys(c.names))...)
}

// dropOthers removes the files in a directory of copies that are not copies of
// now: an agent that was killed, or one of an earlier release, left them there,
// the node's kubeconfig with its key among them.
func dropOthers(dir string, names ...string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if e.IsDir() || e.Name() == configCopy || e.Name() == argsFile || e.Name() == sliceFile || e.Name() == stateFile || e.Name() == assignedFile || slices.Contains(names, e.Name()) {
			continue
		}
		errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
	}
	return errors.Join(errs...)
}

func (c *credentials) watch(source string) {
	dir := filepath.Dir(source)
	if !c.sources[dir] {
		c.sources[dir] = true
		c.look()
	}
}

// look has follow look at the originals' directories.
func (c *credentials) look() {
	c.changed.Set()
}

// follow copies again whenever something changes beside an original, or its
// directory is another. It returns when ctx is done.
func (c *credentials) follow(ctx context.Context) {
	if !c.active {
		return
	}
	dirs := newDirectories(c.log)
	defer dirs.close()
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	said := "" // of what went wrong
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
			c.wantSources(dirs)
			dirs.look()
			timer.Reset(settle) // what changed before it was watched
		case event := <-dirs.events():
			if dirs.saw(event) {
				timer.Reset(settle)
			}
		case err := <-dirs.errors():
			dirs.lost(err)
			timer.Reset(settle)
		case <-dirs.again.C:
			dirs.look()
			timer.Reset(settle)
		case <-timer.C:
			switch _, err := c.copyAll(); {
			case err == nil:
				said = ""
			case err.Error() != said:
				said = err.Error()
				c.log.Error(err, "Changed certificates could not be copied for the gateway")
			}
		}
	}
}

func (c *credentials) wantSources(dirs *directories) {
	defer c.turns.Take(c.dir)()
	for dir := range c.sources {
		dirs.want(dir)
	}
}

// ensureServing writes a self-signed serving certificate into --cert-dir when none is
// configured and none is there that can be used, as the gateway may not write it. A
// damaged one is set aside.
func ensureServing(log klog.Logger, loaded *kubeletconfig.Loaded, cert, key string) error {
	if loaded.Config.TLSCertFile != "" {
		return nil
	}
	_, err := nodecert.ReadPair(cert, key)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, nodecert.ErrDamaged) && !errors.Is(err, fs.ErrNotExist):
		return nil // it may be good; whoever copies it says what is wrong
	}
	for _, file := range []string{cert, key} {
		aside, asideErr := fsatomic.SetAside(file)
		switch {
		case asideErr == nil:
			log.Info("A serving certificate that cannot be used was set aside, and another is made", "file", file, "as", aside, "err", err)
		case !errors.Is(asideErr, fs.ErrNotExist) && !errors.Is(asideErr, syscall.ENOTDIR):
			return fmt.Errorf("%w; it cannot be set aside: %w", err, asideErr)
		}
	}
	if err := os.MkdirAll(filepath.Dir(cert), 0o755); err != nil {
		return fmt.Errorf("make --cert-dir: %w", err)
	}
	var ips []net.IP
	for _, text := range append(strings.Split(loaded.Flags.NodeIP, ","), "127.0.0.1") {
		if ip, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil && !ip.IsUnspecified() {
			ips = append(ips, ip.AsSlice())
		}
	}
	certPEM, keyPEM, err := certutil.GenerateSelfSignedCertKey(loaded.NodeName, ips, nil)
	if err != nil {
		return fmt.Errorf("make a self-signed serving certificate: %w", err)
	}
	if err := fsatomic.WriteFile(key, keyPEM, 0o600); err != nil {
		return err
	}
	return fsatomic.WriteFile(cert, certPEM, 0o644)
}

// configCopy is the name of the copy of the configuration.
const configCopy = "config.json"

// writeConfigCopy writes the configuration in effect for a service that may
// not read the original, and returns the flags that name it.
func writeConfigCopy(dir string, loaded *kubeletconfig.Loaded, gid int) ([]string, error) {
	path := filepath.Join(dir, configCopy)
	if err := fsatomic.WriteFileOwned(path, loaded.CopyJSON(), copyMode, -1, gid); err != nil {
		return nil, err
	}
	return []string{"--config=" + path, "--config-dir=", "--bootstrap-kubeconfig="}, nil
}
