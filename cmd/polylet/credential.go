package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/kubeclient"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/nodecert"
	"github.com/polylet/polylet/internal/supervise"
	"github.com/polylet/polylet/internal/turn"
)

// credentialSource says where the node's credential for the apiserver is.
func credentialSource(loaded *kubeletconfig.Loaded) kubeclient.Source {
	out := kubeclient.Source{Kubeconfig: loaded.Flags.Kubeconfig, Bootstrap: loaded.Flags.BootstrapKubeconfig}
	if loaded.AsksForClientCertificate() {
		out.Store = nodecert.Store{Dir: loaded.Flags.CertDir, Prefix: nodecert.Client}
	}
	return out
}

// watchSource calls changed when a file of a source has changed, until ctx is done; nil
// then. The kernel does not tell of all: whoever needs to know looks by himself, too.
func watchSource(ctx context.Context, source kubeclient.Source, changed func()) error {
	dirs := newDirectories(klog.FromContext(ctx))
	defer dirs.close()
	for _, file := range []string{source.Kubeconfig, source.Bootstrap} {
		if file != "" {
			dirs.want(filepath.Dir(file), filepath.Base(file))
		}
	}
	if source.Store.Dir != "" {
		dirs.want(source.Store.Dir, filepath.Base(source.Store.CurrentPath()))
	}
	dirs.look()
	changed()
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-dirs.events():
			if dirs.saw(event) {
				timer.Reset(settleSource)
			}
		case err := <-dirs.errors():
			dirs.lost(err)
			changed()
		case <-dirs.again.C:
			dirs.look()
			changed()
		case <-timer.C:
			changed()
		}
	}
}

// settleSource is how long changes of a source's files may go on before they are looked
// at: what is written there is written at once.
const settleSource = 20 * time.Millisecond

// followCredential are the parts that follow the node's credential; none without an
// apiserver.
func followCredential(f *kubeclient.Follower, source kubeclient.Source, h health.Reporter) []func(context.Context) error {
	if f == nil {
		return nil
	}
	return []func(context.Context) error{
		func(ctx context.Context) error { return f.Run(ctx, h) },
		func(ctx context.Context) error { return watchSource(ctx, source, f.Changed) },
	}
}

// writeKubeconfig writes the kubeconfig that leads to the node's certificate.
func writeKubeconfig(source kubeclient.Source, log klog.Logger) error {
	written, err := kubeclient.WriteKubeconfig(source, time.Now())
	if written {
		log.Info("The kubeconfig is written: it leads to the certificate that nodestatus gets", "kubeconfig", source.Kubeconfig, "certificate", source.Store.CurrentPath())
	}
	return err
}

// rootsPart is what root does for the node's certificates, which nodestatus may not: it
// gives it their directory and writes the kubeconfig.
type rootsPart struct {
	// loaded is the configuration of now: what is asked for may change with it.
	loaded func() *kubeletconfig.Loaded
	source kubeclient.Source
	dir    string
	uid    int
	log    klog.Logger

	// turns are at the directory, and at what is below: the disk may be slow.
	turns turn.Turns
	// missing is since when there is no directory.
	missing time.Time
	said    string // of what went wrong
}

// anewAfter is when a directory that somebody has removed is made anew: who has may be
// about to put another there.
const anewAfter = 30 * time.Second

// newRootsPart returns nil where nobody asks for certificates, nor will while the node runs.
func newRootsPart(current func() *kubeletconfig.Loaded, nodestatus supervise.Identity, log klog.Logger) *rootsPart {
	loaded := current()
	if loaded.Standalone || !loaded.AsksForClientCertificate() && !loaded.Config.ServerTLSBootstrap {
		return nil
	}
	part := &rootsPart{loaded: current, source: credentialSource(loaded), dir: loaded.Flags.CertDir, uid: -1, log: log}
	if nodestatus.Drop {
		part.uid = nodestatus.UID
	}
	return part
}

// isAsked says whether certificates are asked for now: none is for serving as long as one is
// named, beside which there may be other things in the directory.
func (r *rootsPart) isAsked() bool {
	return r != nil && (r.loaded().AsksForClientCertificate() || r.loaded().WaitsForServing())
}

// prepare makes the directory nodestatus' own. Where that cannot be, all else goes on,
// and nodestatus says that it cannot write.
func (r *rootsPart) prepare() {
	if r.isAsked() {
		defer r.turns.Take(r.dir)()
		r.tell(r.give())
	}
}

// give makes the directory and gives it to nodestatus, unless that could then exchange what
// says whom this node obeys.
func (r *rootsPart) give() error {
	c := r.loaded().Config
	return nodecert.Prepare(r.dir, r.uid, r.source.Kubeconfig, r.source.Bootstrap, c.Authentication.X509.ClientCAFile, c.StaticPodPath)
}

// follow does what is to be done whenever something changes, until ctx is done.
func (r *rootsPart) follow(ctx context.Context) {
	if r == nil {
		return
	}
	watched := r.source
	watched.Store = nodecert.Store{Dir: r.dir, Prefix: nodecert.Client}
	_ = watchSource(ctx, watched, func() { r.look(time.Now()) })
}

func (r *rootsPart) look(now time.Time) {
	if !r.isAsked() {
		return
	}
	defer r.turns.Take(r.dir)()
	if _, err := os.Stat(r.dir); errors.Is(err, fs.ErrNotExist) {
		if r.missing.IsZero() {
			r.missing = now
		}
		if now.Sub(r.missing) < anewAfter {
			return
		}
	}
	r.missing = time.Time{}
	r.tell(errors.Join(r.give(), writeKubeconfig(r.source, r.log)))
}

// tell logs an error once.
func (r *rootsPart) tell(err error) {
	switch {
	case err == nil:
		r.said = ""
	case err.Error() != r.said:
		r.said = err.Error()
		r.log.Error(err, "The node's certificates cannot be kept: nodestatus says of which, in polylet status", "directory", r.dir, "kubeconfig", r.source.Kubeconfig)
	}
}
