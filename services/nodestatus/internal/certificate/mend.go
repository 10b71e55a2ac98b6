package certificate

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/nodecert"
)

// mend has a damaged certificate replaced by what is known of it: as it was read before,
// else by an earlier one that is good. With neither the damaged file is set aside, and
// another is asked for.
func (k *Keeper) mend(ctx context.Context) error {
	recovered, err := k.cfg.Store.Recover()
	if err != nil {
		return &problem{error: fmt.Errorf("%w: %s", err, k.unwritable(err)), reason: "CertificateNotWritten"}
	}
	if recovered {
		klog.FromContext(ctx).Info("A certificate that an agent was killed over takes its place", "certificate", k.cfg.Name, "file", k.cfg.Store.CurrentPath())
		k.deps.Written(ctx)
	}
	err = k.damage()
	if err == nil {
		return nil
	}
	now := time.Now()
	good := func(leaf *x509.Certificate) bool { return now.Before(leaf.NotAfter) }
	if k.last == nil || !good(k.last.Leaf) {
		return k.setAside(ctx, err, good)
	}
	if writeErr := k.cfg.Store.Write(k.last, now); writeErr != nil {
		return &problem{error: fmt.Errorf("%w; it cannot be written anew: %w: %s", err, writeErr, k.unwritable(writeErr)), reason: "CertificateDamaged"}
	}
	k.event(ctx, "CertificateDamaged", fmt.Sprintf("%v: it was written anew as it had been read before", err))
	k.deps.Written(ctx)
	return nil
}

// settled is how old a damaged file has to be: whoever copies another certificate to its
// place has written it by then, and must not find the old one there instead.
const settled = 5 * time.Second

// damage is what there is to mend; a certificate that is good is kept in mind.
func (k *Keeper) damage() error {
	pair, err := k.store.Read()
	switch {
	case err == nil:
		k.last = pair
		return nil
	case errors.Is(err, fs.ErrNotExist):
		k.last = nil // whoever has removed it has the node begin anew
		return nil
	case !errors.Is(err, nodecert.ErrDamaged) || k.isBeingWritten():
		return nil
	}
	return err
}

// unread is why nobody knows whether there is a certificate: another is not asked for only
// since a file cannot be read.
func (k *Keeper) unread() error {
	_, err := k.store.Read()
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, nodecert.ErrDamaged) {
		return nil
	}
	return &problem{error: fmt.Errorf("%w: it is not known how long the %s certificate is good, and no other is asked for: let the service read it, or remove it", err, k.cfg.Name), reason: "CertificateNotRead"}
}

// isUnsettled says whether a certificate may be on its way to the place of a damaged one:
// it is neither mended nor is another asked for.
func (k *Keeper) isUnsettled() bool {
	_, err := k.store.Read()
	return errors.Is(err, nodecert.ErrDamaged) && k.isBeingWritten()
}

func (k *Keeper) isBeingWritten() bool {
	info, err := os.Stat(k.cfg.Store.CurrentPath())
	if err != nil {
		return false
	}
	age := time.Since(info.ModTime())
	return age >= 0 && age < settled
}

// setAside is mend of what was not read before it was damaged.
func (k *Keeper) setAside(ctx context.Context, damage error, good func(*x509.Certificate) bool) error {
	aside, instead, err := k.cfg.Store.Mend(good)
	if err != nil {
		return &problem{error: fmt.Errorf("%w; it cannot be set aside: %w: %s", damage, err, k.unwritable(err)), reason: "CertificateDamaged"}
	}
	where, what := "the link to it was removed", "another is asked for"
	if aside != "" {
		where = "it was set aside as " + aside
	}
	if instead != nil {
		what = "an earlier one that is good takes its place"
	}
	k.event(ctx, "CertificateDamaged", fmt.Sprintf("%v: %s, and %s", damage, where, what))
	k.deps.Written(ctx)
	return nil
}
