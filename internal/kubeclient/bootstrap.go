package kubeclient

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// bootstrap is what the bootstrap kubeconfig held when it was read last. As long as the
// node has no certificate it counts when the file is gone, too, as with the kubelet:
// kubeadm join removes it when it gives up, and whoever approves requests may be later.
type bootstrap struct {
	config *rest.Config
	text   []byte
	// changed is called when there is another, or when the node is to join with it; nil
	// calls nothing.
	changed func()
	// later says that it came to a node that had a credential already.
	later bool
	// rejoins says that the node is to join with it all the same: see Rejoins.
	rejoins bool
}

// take takes what was read. It says whether there is something else to ask with than
// before. had: there is a credential; has: the files have one.
func (b *bootstrap) take(r readings, had, has bool) (another bool) {
	gone := isAbsent(r.source.Bootstrap, r.bootstrapErr)
	switch {
	case r.bootstrap != nil:
		if another = !bytes.Equal(b.text, r.bootstrapText); another {
			b.later = had
		}
		b.config, b.text = r.bootstrap, r.bootstrapText
	case !gone:
		b.config = nil
	}
	before := b.rejoins
	b.rejoins = had && b.later && b.config != nil && r.areWithoutCertificate()
	if gone {
		b.text = nil // the next is another, whatever it holds: somebody joins the node again
		if (had || has) && !b.rejoins {
			b.config = nil
		}
	}
	return another || b.rejoins && !before
}

// areWithoutCertificate says that there is none, and no other credential, rather than one
// that cannot be read.
func (r *readings) areWithoutCertificate() bool {
	if r.stored != nil || !errors.Is(r.storedErr, fs.ErrNotExist) {
		return false
	}
	if r.kubeconfig == nil {
		return errors.Is(r.kubeconfigErr, fs.ErrNotExist)
	}
	return hasCertificate(r.kubeconfig) && r.own == nil && errors.Is(r.ownErr, fs.ErrNotExist)
}

// Rejoins says that the certificate of now counts no more: somebody has removed its files,
// and has brought a bootstrap kubeconfig since the node had it. Another is to be asked for
// with that. Where nobody has brought one, what was read goes on.
func (f *Follower) Rejoins() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bootstrap.rejoins
}

// OnBootstrap has a function called whenever there is another bootstrap kubeconfig, and when
// the node is to join with the one that there is: who joins the node again waits for what
// comes of it.
func (f *Follower) OnBootstrap(changed func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bootstrap.changed = changed
}

// BootstrapFile is --bootstrap-kubeconfig.
func (f *Follower) BootstrapFile() string { return f.source.Bootstrap }

// BootstrapClient makes a client with what the bootstrap kubeconfig holds, to ask for a
// certificate with. An error that is fs.ErrNotExist says that there is none.
func (f *Follower) BootstrapClient(userAgent string) (kubernetes.Interface, error) {
	f.Look()
	f.mu.Lock()
	held := f.bootstrap.config
	f.mu.Unlock()
	path := f.source.Bootstrap
	if held == nil {
		_, err := load(path)
		switch {
		case isAbsent(path, err):
			return nil, &noBootstrap{path}
		case err == nil:
			err = errors.New("it was being written just now")
		}
		return nil, fmt.Errorf("%s: correct it (kubeadm join writes it anew)", unusable("bootstrap kubeconfig", path, err))
	}
	cfg := rest.CopyConfig(held)
	cfg.UserAgent = userAgent
	cfg.Wrap(WithAnswerTimeout)
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client for apiserver %s from bootstrap kubeconfig %s: %w", cfg.Host, path, err)
	}
	return client, nil
}

// noBootstrap is the error of a bootstrap kubeconfig that is not there.
type noBootstrap struct{ path string }

func (n *noBootstrap) Error() string {
	return fmt.Sprintf("there is no bootstrap kubeconfig %s to ask for one with: kubeadm join writes it, and removes it when it gives up: join the node again (kubeadm reset, then kubeadm join)", n.path)
}

func (n *noBootstrap) Is(target error) bool { return target == fs.ErrNotExist }
