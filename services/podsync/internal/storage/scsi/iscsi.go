package scsi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

const (
	// mostTries is how often it is tried to have a target's disk by more than one portal,
	// and triesForTwo how often for the rest of them, when it can be had by two.
	mostTries   = 5
	triesForTwo = 2
	// attachWithin is how long it is tried by all portals. Meanwhile nobody else's disk of the
	// target comes or goes, and whoever makes pods may name any portals.
	attachWithin = 5 * time.Minute
)

// login is the way to a disk of a target.
type login struct {
	want      *wanted
	place     place
	target    *target
	transport string
	words     map[string]string // for CHAP
}

// attachISCSI logs in to a target by all of its portals, and returns the disk's device. The
// caller has the target's turn.
func (v *Volumes) attachISCSI(ctx context.Context, l *login) (device string, err error) {
	t := l.target
	if l.words, err = v.words(ctx, l.want); err != nil {
		return "", err
	}
	if l.transport, err = v.transport(ctx, t.InitIface); err != nil {
		return "", err
	}
	if t.InitiatorName != "" {
		if err := v.cloneInterface(ctx, t); err != nil {
			return "", err
		}
	}
	links := map[string]string{}
	var last error
	inTime, cancel := context.WithTimeout(ctx, attachWithin)
	defer cancel()
	for try := 1; try <= mostTries && inTime.Err() == nil; try++ {
		for _, portal := range t.Portals {
			if links[portal] != "" || inTime.Err() != nil {
				continue
			}
			link, err := v.path(inTime, l, portal)
			if err != nil {
				last = err
				continue
			}
			links[portal] = link
		}
		if len(links) == 0 {
			return "", v.noPath(ctx, t, last)
		}
		if len(links) == len(t.Portals) || len(links) >= 2 && try >= triesForTwo {
			break
		}
	}
	if len(links) < len(t.Portals) {
		klog.FromContext(ctx).Info("An iSCSI target's disk cannot be had by all of its portals", "pod", klog.KObj(l.want.pod), "volume", l.want.name, "err", last)
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	return v.together(ctx, links, len(t.Portals) > 1), nil
}

// noPath says that a target's disk cannot be had.
func (v *Volumes) noPath(ctx context.Context, t *target, last error) error {
	if t.cloned() {
		_, _ = v.iscsiadm(ctx, "-m", "iface", "-I", t.Iface, "-o", "delete") // it is made anew
	}
	return fmt.Errorf("failed to get any path for iscsi disk, last err seen:\n%w", last)
}

// together is the device that some paths with a disk are; one of several may take a moment
// to become that.
func (v *Volumes) together(ctx context.Context, links map[string]string, several bool) string {
	sorted := slices.Sorted(maps.Keys(links))
	find := func() string {
		for _, portal := range sorted {
			if dm := v.multipath(v.named(links[portal])); dm != "" {
				return filepath.Join(v.cfg.Dev, dm)
			}
		}
		return ""
	}
	device := find()
	if several && device == "" {
		device = await(ctx, v.cfg.Dev, multipathWithin, find)
	}
	if device == "" {
		device = links[sorted[0]]
	}
	return device
}

// path logs in by one portal, unless that is done, has the kernel look for the disk, and
// waits for the link to it.
func (v *Volumes) path(ctx context.Context, l *login, portal string) (link string, err error) {
	t := l.target
	host, is, err := v.hostOf(t.Iqn, portal)
	if err == nil && !is {
		if err = v.logIn(ctx, l, portal); err == nil {
			host, is, err = v.hostOf(t.Iqn, portal)
		}
	}
	if err != nil {
		return "", err
	}
	if !is {
		return "", fmt.Errorf("could not get SCSI host number for portal %s after logging in", portal)
	}
	scan := filepath.Join(v.cfg.Sys, "class/scsi_host", fmt.Sprintf("host%d", host), "scan")
	if _, err := v.do(ctx, t.turn(), callScan, scan, "0 0 "+t.Lun); err != nil {
		return "", fmt.Errorf("scan SCSI host %d for LUN %s: %w", host, t.Lun, err)
	}
	address := strings.NewReplacer("[", "", "]", "").Replace(portal) // links have none
	name := "ip-" + address + "-iscsi-" + t.Iqn + "-lun-" + t.Lun
	dir := filepath.Join(v.cfg.Dev, "disk/by-path")
	link = await(ctx, dir, deviceWithin, func() string {
		entries, _ := os.ReadDir(dir) // it may not be there yet
		for _, e := range entries {
			if link := filepath.Join(dir, e.Name()); leads(e.Name(), name, l.transport) && v.named(link) != "" {
				return link
			}
		}
		return ""
	})
	if link == "" {
		return "", fmt.Errorf("timed out waiting for device at path %s after %ds", filepath.Join(dir, name), int(deviceWithin.Seconds()))
	}
	return link, nil
}

// leads says whether a link's name is that of a disk, before which stands the adapter where
// that speaks iSCSI itself.
func leads(link, name, transport string) bool {
	if transport == "tcp" {
		return link == name
	}
	adapter, ours := strings.CutSuffix(link, "-"+name)
	return ours && strings.HasPrefix(adapter, "pci-") && !strings.Contains(adapter, "-iscsi-")
}

// hostOf is the SCSI host of a session by a portal.
func (v *Volumes) hostOf(iqn, portal string) (host int, is bool, err error) {
	sessions, err := v.sessions(iqn)
	for _, s := range sessions {
		if slices.Contains(s.portals, portal) {
			return s.host, true, nil
		}
	}
	return 0, false, err
}

// transport is what an interface of open-iscsi goes by.
func (v *Volumes) transport(ctx context.Context, iface string) (string, error) {
	shown, err := v.iscsiadm(ctx, "-m", "iface", "-I", iface, "-o", "show")
	if err != nil {
		return "", fmt.Errorf("iscsi: could not read iface %s: %w", iface, err)
	}
	for line := range strings.Lines(shown) {
		if name, is := strings.CutPrefix(strings.TrimSpace(line), "iface.transport_name = "); is && name != "" {
			if name == "<empty>" {
				return "tcp", nil
			}
			return name, nil
		}
	}
	return "", fmt.Errorf("could not parse iface file for %s", iface)
}

// cloneInterface makes an interface as another is, with the volume's initiator name.
func (v *Volumes) cloneInterface(ctx context.Context, t *target) error {
	if t.InitIface == t.Iface {
		return podstate.VolumeSpec.Wrap(fmt.Errorf("iscsi: cannot clone iface with same name: %s", t.InitIface))
	}
	shown, err := v.iscsiadm(ctx, "-m", "iface", "-I", t.InitIface, "-o", "show")
	if err != nil {
		return fmt.Errorf("iscsi: failed to show iface records: %w", err)
	}
	settings, err := settingsOf(shown)
	if err != nil {
		return err
	}
	settings["iface.initiatorname"] = t.InitiatorName
	if _, err := v.iscsiadm(ctx, "-m", "iface", "-I", t.Iface, "-o", "new"); unless(err, codeExists) != nil {
		return fmt.Errorf("iscsi: failed to create new iface: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		if _, err := v.iscsiadm(ctx, "-m", "iface", "-I", t.Iface, "-o", "update", "-n", key, "-v", settings[key]); err != nil {
			_, _ = v.iscsiadm(ctx, "-m", "iface", "-I", t.Iface, "-o", "delete")
			return fmt.Errorf("iscsi: failed to update iface records: %w", err)
		}
	}
	return nil
}

// settingsOf are those of an interface that another can have.
func settingsOf(shown string) (map[string]string, error) {
	settings := map[string]string{}
	for line := range strings.Lines(shown) {
		if !strings.HasPrefix(line, "iface.") || strings.Contains(line, "<empty>") {
			continue
		}
		words := strings.Fields(line)
		if len(words) != 3 || words[1] != "=" {
			return nil, fmt.Errorf("error: invalid iface setting: %q", strings.TrimSpace(line))
		}
		if words[0] != "iface.iscsi_ifacename" { // each has its own
			settings[words[0]] = words[2]
		}
	}
	return settings, nil
}

// logIn logs in to a target by a portal. Nothing is discovered: the volume names the target,
// and whoever answers at the portal, which may be of a pod's own spec, would say which records
// of whatever targets this node makes, and writes anew, and may log in to at its next boot. A
// record that is not ours is used as it is: the machine's own disks may be had by it. With words
// for CHAP it is of use to who may say so in a PersistentVolume only: they were not given to
// whoever makes pods.
func (v *Volumes) logIn(ctx context.Context, l *login, portal string) error {
	t := l.target
	node := []string{"-m", "node", "-p", portal, "-T", t.Iqn, "-I", t.Iface}
	before := t.at(portal)
	begun := before
	begun.Boot = v.cfg.Boot
	others, words, err := v.taken(ctx, node, before)
	if err != nil {
		return fmt.Errorf("iscsi: failed to look for the record of %s at portal %s: %w", t.Iqn, portal, err)
	}
	if words && l.want.inline {
		return podstate.VolumeAsSaid.Wrap(fmt.Errorf("iscsi: the node has a record of %s at portal %s that was not made for a volume and has CHAP credentials, which no volume in a pod's own spec gets; use a PersistentVolume, or have the node's administrator remove the record", t.Iqn, portal))
	}
	begun.Record, begun.Written = !others, false // until it is made anew
	if err := v.note(l.place, t, begun); err != nil {
		return err
	}
	if begun.Record {
		if begun.Written, err = v.makeRecord(ctx, l, node, portal); err != nil {
			return errors.Join(err, v.dropRecord(ctx, l, node, begun))
		}
		if err := v.note(l.place, t, begun); err != nil {
			return err
		}
	} else {
		klog.FromContext(ctx).Info("The node has a record of an iSCSI target that was not made for a volume: it is used as it is", "pod", klog.KObj(l.want.pod), "volume", l.want.name)
	}
	_, err = v.iscsiadm(ctx, slices.Concat(node, []string{"--login"})...)
	if err != nil && unless(err, codeExists) == nil { // somebody else has just begun it, if we had not
		begun.Boot = before.Boot
		return v.note(l.place, t, begun)
	}
	if err != nil {
		err = fmt.Errorf("iscsi: failed to attach disk: %w", err)
		if begun.Record {
			err = errors.Join(err, v.dropRecord(ctx, l, node, begun))
		}
		return err // the session stays noted: it may come late
	}
	return nil
}

// dropRecord removes a record that was made and is of no use. What is there later is somebody
// else's, who may make one while it is tried again.
func (v *Volumes) dropRecord(ctx context.Context, l *login, node []string, m made) error {
	if _, err := v.iscsiadm(ctx, slices.Concat(node, []string{"-o", "delete"})...); unless(err, codeNoObject) == nil {
		m.Record, m.Written = false, false
	} // else it stays noted
	return v.note(l.place, l.target, m)
}

// makeRecord makes iscsiadm's record of a target at a portal, and says whether what is written
// into each is in it.
func (v *Volumes) makeRecord(ctx context.Context, l *login, node []string, portal string) (written bool, err error) {
	do := func(of []string, more ...string) error {
		_, err := v.iscsiadm(ctx, slices.Concat(of, more)...)
		return err
	}
	if err := do(node, "-o", "new"); err != nil { // one that is there is made anew
		return false, fmt.Errorf("iscsi: failed to make the record of %s at portal %s: %w", l.target.Iqn, portal, err)
	}
	written = true
	for _, key := range byHand() {
		if err := do(node, "-o", "update", "-n", key, "-v", "manual"); err != nil {
			written = false
			klog.FromContext(ctx).Info("An iSCSI record does not take a setting: the next boot may begin the session, or all disks of the target come to the node with the first", "setting", key, "err", err)
		}
	}
	if !l.want.chapSession {
		return written, nil
	}
	if err := chap(do, node, l.words); err != nil {
		return false, fmt.Errorf("iscsi: failed to update iscsi node to portal %s error: %w", portal, err)
	}
	return written, nil
}

// chapPrefix is what the names of settings for CHAP begin with.
const chapPrefix = "node.session.auth."

func chapWords() [4]string { return [4]string{"username", "password", "username_in", "password_in"} }

// chap sets the words for CHAP. They are in no error.
func chap(do func(of []string, more ...string) error, of []string, words map[string]string) error {
	const prefix = chapPrefix
	if err := do(of, "-o", "update", "-n", prefix+"authmethod", "-v", "CHAP"); err != nil {
		return err
	}
	for _, key := range chapWords() {
		word := strings.TrimSuffix(words[prefix+key], "\n")
		if word == "" {
			continue
		}
		if strings.ContainsAny(word, "\n\r") {
			return podstate.VolumeAsSaid.Wrap(errors.New(prefix + key + " of the secret has more than one line; correct the secret"))
		}
		if err := do(of, "-o", "update", "-n", prefix+key, "-v", word); err != nil {
			return errors.New("iscsiadm does not take " + prefix + key + "; what it says is not shown, since it may name the secret")
		}
	}
	return nil
}
