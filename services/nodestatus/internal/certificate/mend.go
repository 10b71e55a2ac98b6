package certificate

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/polylet/polylet/internal/nodecert"
)

// mend has a damaged certificate replaced by what is known of it: as it was read before,
// else by an earlier one that is good. With neither the damaged file is set aside, and
// another is asked for.
func (k *Keeper) mend(ctx context.Context) error {
	pair, err := k.store.Read()
	if err == nil {
		k.last = pair
	}
	if !errors.Is(err, nodecert.ErrDamaged) {
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

// isDamaged says whether there is something to mend.
func (k *Keeper) isDamaged() bool {
	_, err := k.store.Read()
	return errors.Is(err, nodecert.ErrDamaged)
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
