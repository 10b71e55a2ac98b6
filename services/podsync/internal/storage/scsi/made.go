package scsi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"k8s.io/klog/v2"
)

// made is what was made for the disk of a target at one portal, and goes with the disk. What
// was there before is somebody else's: the administrator may have logged in by himself.
type made struct {
	Portal string
	Iface  string
	// Record: iscsiadm's record of the target at the portal.
	Record bool
	// Boot is that of the machine in which the session was begun, by its ID: a later one may
	// have begun it by itself. Empty if it is not ours.
	Boot string `json:",omitempty"`
	// Cloned: and the interface was made for the volume.
	Cloned bool `json:",omitempty"`
}

// all is what was made for a target's disk. Nobody knows it of a disk that another agent, or a
// release before this one, has brought to the node: then it is all of it.
func (v *Volumes) all(t *target) []made {
	if t.Made != nil {
		return t.Made
	}
	list := make([]made, len(t.Portals))
	for i, portal := range t.Portals {
		list[i] = made{Portal: portal, Iface: t.Iface, Record: true, Boot: v.cfg.Boot, Cloned: t.cloned()}
	}
	return list
}

// remember has a target know what was made for it before in its place. The caller has its
// turn.
func (v *Volumes) remember(p place, t *target) error {
	if before, is := v.recordAt(p.path); is && before.ISCSI != nil {
		t.Made = slices.Clone(v.all(before.ISCSI))
		return nil
	}
	switch _, err := os.Lstat(p.path); {
	case errors.Is(err, fs.ErrNotExist):
		t.Made = []made{}
	case err != nil:
		return err
	default:
		t.Made = v.all(t)
	}
	return nil
}

// at is what was made at a portal; nothing of it when nothing was.
func (t *target) at(portal string) made {
	for _, m := range t.Made {
		if m.Portal == portal && m.Iface == t.Iface {
			return m
		}
	}
	return made{Portal: portal, Iface: t.Iface, Cloned: t.cloned()}
}

// note keeps what is made at a portal, before it is begun. The caller has the target's turn.
func (v *Volumes) note(p place, t *target, m made) error {
	if t.at(m.Portal) == m {
		return nil
	}
	t.Made = slices.DeleteFunc(t.Made, func(o made) bool { return o.Portal == m.Portal && o.Iface == m.Iface })
	t.Made = append(t.Made, m)
	return v.keep(p, false)
}

// handOver leaves what was made for one disk of a target to another, which needs it still. The
// caller has the target's turn.
func (v *Volumes) handOver(t *target, to []place) error {
	for _, heir := range to {
		before, is := v.recordAt(heir.path)
		if !is || before.ISCSI == nil {
			continue // another agent's, of which all that it names is taken away
		}
		o := before.ISCSI
		o.Made = slices.Clone(v.all(o))
		for _, m := range v.all(t) {
			i := slices.IndexFunc(o.Made, func(own made) bool { return own.Portal == m.Portal && own.Iface == m.Iface })
			if i < 0 {
				o.Made = append(o.Made, m)
				continue
			}
			own := &o.Made[i]
			own.Record, own.Cloned = own.Record || m.Record, own.Cloned || m.Cloned
			if own.Boot != v.cfg.Boot {
				own.Boot = cmp.Or(m.Boot, own.Boot)
			}
		}
		heir.disk = o
		return v.keep(heir, true) // its filesystem is mounted where its file lies
	}
	return nil
}

// dropInterface removes the interface that was made for a target's disk, unless a session was
// begun by it, or another disk has one of its name.
func (v *Volumes) dropInterface(ctx context.Context, t *target, others []place) {
	by := func(o *target) bool {
		return slices.ContainsFunc(v.all(o), func(m made) bool { return m.Iface == t.Iface })
	}
	if !t.cloned() || by(t) || slices.ContainsFunc(others, func(p place) bool {
		o, is := p.disk.(*target)
		return is && (o.Iface == t.Iface || by(o))
	}) {
		return
	}
	if _, err := v.iscsiadm(ctx, "-m", "iface", "-I", t.Iface, "-o", "delete"); unless(err, codeNoObject, codeNoSession) != nil {
		klog.FromContext(ctx).Info("The interface that was made for a disk of an iSCSI target is left", "err", err)
	}
}

// known says whether iscsiadm has a record.
func (v *Volumes) known(ctx context.Context, node []string) (bool, error) {
	_, err := v.iscsiadm(ctx, slices.Concat(node, []string{"-o", "show"})...)
	if err != nil && unless(err, codeNoObject) == nil {
		return false, nil
	}
	return err == nil, err
}

// undo ends a session that was begun, and removes a record that was made; none that is not
// there, and nothing of a portal that somebody else has a session by.
func (v *Volumes) undo(ctx context.Context, t *target, m made, sessions []session) error {
	node := []string{"-m", "node", "-p", m.Portal, "-T", t.Iqn, "-I", m.Iface}
	var steps [][]string
	if m.Boot == v.cfg.Boot {
		steps = append(steps, []string{"--logout"})
	} else if slices.ContainsFunc(sessions, func(s session) bool { return slices.Contains(s.portals, m.Portal) }) {
		klog.FromContext(ctx).Info("A session with an iSCSI target stays: it was not begun for a volume", "address", m.Portal)
		return nil
	}
	if m.Record {
		steps = append(steps, []string{"-o", "delete"})
	}
	for _, what := range steps {
		if _, err := v.iscsiadm(ctx, slices.Concat(node, what)...); unless(err, codeNoObject, codeNoSession) != nil {
			return fmt.Errorf("log out of %s at %s: %w", t.Iqn, m.Portal, err)
		}
	}
	return nil
}
