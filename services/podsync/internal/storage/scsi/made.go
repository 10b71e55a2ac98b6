package scsi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/rpcerr"
)

// made is what was made for the disk of a target at one portal, and goes with the disk. What
// was there before is somebody else's: the administrator may have logged in by himself.
type made struct {
	Portal string
	Iface  string
	// Record: iscsiadm's record of the target at the portal.
	Record bool
	// Written: what was to be written into it is there. A record that says otherwise was made
	// in its place.
	Written bool `json:",omitempty"`
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

// handOver leaves what was made for one disk of a target to another, which needs it still, and
// takes away what neither does: whoever makes pods may name any portals, and all that is left to
// a disk that stays is there as long as it. The caller has the target's turn.
func (v *Volumes) handOver(ctx context.Context, t *target, heirs, others []place) error {
	useless, err := v.parted(ctx, t, heirs)
	if err != nil {
		return err
	}
	v.dropInterfaces(ctx, t, useless, others)
	for _, heir := range heirs {
		before, is := v.recordAt(heir.path)
		if !is || before.ISCSI == nil {
			continue // another agent's, of which all that it names is taken away
		}
		o := before.ISCSI
		o.Made = slices.Clone(v.all(o))
		for _, m := range t.Made {
			o.inherit(m, v.cfg.Boot)
		}
		heir.disk = o
		return v.keep(heir, true) // its filesystem is mounted where its file lies
	}
	return nil
}

// inherit adds what was made for another disk.
func (t *target) inherit(m made, boot string) {
	i := slices.IndexFunc(t.Made, func(own made) bool { return own.Portal == m.Portal && own.Iface == m.Iface })
	if i < 0 {
		t.Made = append(t.Made, m)
		return
	}
	own := &t.Made[i]
	own.Record, own.Written, own.Cloned = own.Record || m.Record, own.Written || m.Written, own.Cloned || m.Cloned
	if own.Boot != boot {
		own.Boot = cmp.Or(m.Boot, own.Boot)
	}
}

// parted takes away what was made for a disk and is of no use to others of its target, and
// leaves the rest with it. Of use is a session by a portal that another names, or has a disk by.
func (v *Volumes) parted(ctx context.Context, t *target, heirs []place) (useless []made, err error) {
	sessions, err := v.sessions(t.Iqn)
	if err != nil {
		return nil, err
	}
	var used []made
	for _, m := range v.all(t) {
		use, err := inUse(m, sessions, heirs)
		if err != nil {
			return nil, err
		}
		if !use {
			err = v.undo(ctx, t, m, sessions)
		}
		switch {
		case use, errors.Is(err, rpcerr.ErrUnavailable):
			used = append(used, m)
		case err != nil:
			return nil, err
		default:
			useless = append(useless, m)
		}
	}
	t.Made = append([]made{}, used...)
	return useless, nil
}

func inUse(m made, sessions []session, heirs []place) (bool, error) {
	for _, s := range sessions {
		if !slices.Contains(s.portals, m.Portal) {
			continue
		}
		if slices.ContainsFunc(heirs, func(p place) bool { return slices.Contains(p.disk.(*target).Portals, m.Portal) }) {
			return true, nil
		}
		if disks, err := disksOf(s, "*"); err != nil || len(disks) > 0 {
			return true, err
		}
	}
	return false, nil
}

// dropInterfaces removes the interfaces that were made for a target's disk, and that by which
// what is of no use was made, unless something else was made by them, or another disk has one
// of their names.
func (v *Volumes) dropInterfaces(ctx context.Context, t *target, useless []made, others []place) {
	names := map[string]bool{}
	if t.cloned() {
		names[t.Iface] = true
	}
	for _, m := range useless {
		if m.Cloned {
			names[m.Iface] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		by := func(o *target) bool {
			return slices.ContainsFunc(v.all(o), func(m made) bool { return m.Iface == name })
		}
		if by(t) || slices.ContainsFunc(others, func(p place) bool {
			o, is := p.disk.(*target)
			return is && (o.Iface == name || by(o))
		}) {
			continue
		}
		if _, err := v.iscsiadm(ctx, "-m", "iface", "-I", name, "-o", "delete"); unless(err, codeNoObject, codeNoSession) != nil {
			klog.FromContext(ctx).Info("The interface that was made for a disk of an iSCSI target is left", "err", err)
		}
	}
}

// taken says whether iscsiadm has a record that is somebody else's: any, if none was made, and
// else one that does not say what was written.
func (v *Volumes) taken(ctx context.Context, node []string, m made) (bool, error) {
	if m.Record && !m.Written {
		return false, nil // it may be half made
	}
	shown, err := v.iscsiadm(ctx, slices.Concat(node, []string{"-o", "show"})...)
	if err != nil && unless(err, codeNoObject) == nil {
		return false, nil
	}
	return err == nil && (!m.Record || !asWritten(shown)), err
}

// byHand are what is written into each record: the machine's boot must not wait for it, and
// only the disk that is asked for is looked for, not all that the target has (k/k#90982).
func byHand() [2]string { return [2]string{"node.startup", "node.session.scan"} }

// asWritten says whether a record says what is written into each.
func asWritten(shown string) bool {
	for line := range strings.Lines(shown) {
		key, value, is := strings.Cut(strings.TrimSpace(line), " = ")
		if keys := byHand(); is && slices.Contains(keys[:], key) && value != "manual" {
			return false
		}
	}
	return true
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
		theirs, err := v.taken(ctx, node, m)
		if err != nil {
			return fmt.Errorf("look whose record of %s at %s it is: %w", t.Iqn, m.Portal, err)
		}
		if !theirs {
			steps = append(steps, []string{"-o", "delete"})
		}
	}
	for _, what := range steps {
		if _, err := v.iscsiadm(ctx, slices.Concat(node, what)...); unless(err, codeNoObject, codeNoSession) != nil {
			return fmt.Errorf("log out of %s at %s: %w", t.Iqn, m.Portal, err)
		}
	}
	return nil
}
