package main

import (
	"context"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/health"
	"github.com/polylet/polylet/internal/kubeclient"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/nodecert"
	"github.com/polylet/polylet/internal/supervise"
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

// writeKubeconfig writes the kubeconfig when there is a certificate for it.
func writeKubeconfig(source kubeclient.Source, log klog.Logger) error {
	written, err := kubeclient.WriteKubeconfig(source, time.Now())
	if written {
		log.Info("The kubeconfig is written: the node has joined the cluster", "kubeconfig", source.Kubeconfig, "certificate", source.Store.CurrentPath())
	}
	return err
}

// keepKubeconfig writes the kubeconfig for nodestatus, which may not, whenever there is a
// certificate for it, until ctx is done.
func keepKubeconfig(ctx context.Context, loaded *kubeletconfig.Loaded, log klog.Logger) {
	source := credentialSource(loaded)
	if source.Bootstrap == "" || source.Kubeconfig == "" {
		return
	}
	said := "" // of what went wrong
	_ = watchSource(ctx, source, func() {
		switch err := writeKubeconfig(source, log); {
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			log.Error(err, "The node has a client certificate, and its kubeconfig cannot be written; it is tried again", "kubeconfig", source.Kubeconfig)
		}
	})
}

// prepareCertificates makes --cert-dir nodestatus' own where it asks for certificates:
// it has no right to write to what is root's. Where that cannot be, all else goes on, and
// nodestatus says that it cannot write.
func prepareCertificates(loaded *kubeletconfig.Loaded, nodestatus supervise.Identity, log klog.Logger) {
	if !loaded.AsksForClientCertificate() && !loaded.WaitsForServing() || loaded.Standalone {
		return
	}
	uid := -1
	if nodestatus.Drop {
		uid = nodestatus.UID
	}
	if err := nodecert.Prepare(loaded.Flags.CertDir, uid); err != nil {
		log.Error(err, "The node's certificates cannot be renewed", "directory", loaded.Flags.CertDir)
	}
}
