package scsi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// attachFC finds a disk of a fabric, which the fabric has zoned to the node, and returns its
// device. The caller has the disk's turn.
func (v *Volumes) attachFC(ctx context.Context, f *fabric) (device string, err error) {
	disks := v.disksOfFabric(f)
	if dm := v.multipathOf(disks); dm != "" {
		return filepath.Join(v.cfg.Dev, dm), nil
	}
	if err := v.rescan(ctx, f); err != nil && len(disks) == 0 {
		return "", err
	}
	dir, _ := f.links(v.cfg.Dev)
	device = await(ctx, dir, deviceWithin, func() string {
		disks := v.disksOfFabric(f)
		if dm := v.multipathOf(disks); dm != "" {
			return filepath.Join(v.cfg.Dev, dm)
		}
		if len(disks) == 0 {
			return ""
		}
		return filepath.Join(v.cfg.Dev, disks[0])
	})
	switch {
	case device != "":
		return device, nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("no fc disk found; nothing at %s leads to %s: %w", dir, f.called(), context.Cause(ctx))
	}
	return "", fmt.Errorf("no fc disk found; nothing at %s leads to %s: see that the fabric zones it to this node", dir, f.called())
}

// called is a disk as people look for it: a port that is there may not have the LUN.
func (f *fabric) called() string {
	all := strings.Join(f.ids(), ", ")
	if len(f.WWNs) > 0 {
		return "LUN " + f.Lun + " of " + all
	}
	return all
}

// rescan has the SCSI hosts look for disks that may be of a fabric.
func (v *Volumes) rescan(ctx context.Context, f *fabric) error {
	hosts, err := filepath.Glob(filepath.Join(v.cfg.Sys, "class/scsi_host/host*/scan"))
	if err != nil {
		return err
	}
	// Those of iSCSI sessions have no disk of a fabric: each would bring all that its target
	// has, or wait for one that does not answer.
	hosts = slices.DeleteFunc(hosts, func(scan string) bool {
		_, err := os.Stat(filepath.Join(v.cfg.Sys, "class/iscsi_host", filepath.Base(filepath.Dir(scan))))
		return err == nil
	})
	var failed []error
	for _, scan := range hosts {
		if _, err := v.do(ctx, f.turn(), callScan, scan, "- - -"); err != nil {
			failed = append(failed, fmt.Errorf("scan %s: %w", filepath.Dir(scan), err))
		}
	}
	if len(failed) == len(hosts) {
		return errors.Join(failed...)
	}
	return nil // others may not be of a fabric
}

// links says where the links to a disk are, and which of those are.
func (f *fabric) links(dev string) (dir string, is func(name string) bool) {
	if len(f.WWNs) == 0 {
		return filepath.Join(dev, "disk/by-id"), func(name string) bool {
			for _, id := range f.ids() {
				if name == "scsi-"+id {
					return true
				}
			}
			return false
		}
	}
	return filepath.Join(dev, "disk/by-path"), func(name string) bool {
		for _, id := range f.ids() {
			before, ours := strings.CutSuffix(name, "fc-0x"+id+"-lun-"+f.Lun)
			if ours && (before == "" || strings.HasPrefix(before, "pci-") && strings.HasSuffix(before, "-")) {
				return true
			}
		}
		return false
	}
}

// disksOfFabric are the names of the disks that the links lead to.
func (v *Volumes) disksOfFabric(f *fabric) (names []string) {
	dir, is := f.links(v.cfg.Dev)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // there is none yet
	}
	for _, e := range entries {
		if !is(e.Name()) {
			continue
		}
		if name := v.named(filepath.Join(dir, e.Name())); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// pathsOf are the paths to a disk that is named by its WWID, by what the kernel calls it:
// the link leads to one of them when its multipath device is gone, and nowhere when that is
// gone, too. found are those that are known. Only names that are no other disk's in the
// world are believed.
func (v *Volumes) pathsOf(f *fabric, found []string) (names []string) {
	if len(f.WWNs) > 0 {
		return nil
	}
	wwids := map[string]bool{}
	for _, name := range found {
		wwids[text(v.cfg.Sys, "block", name, "device/wwid")] = true
	}
	for _, id := range f.ids() { // as udev names them: by the kind of the kernel's
		if rest, is := strings.CutPrefix(id, "3"); is {
			wwids["naa."+rest] = true
		} else if rest, is := strings.CutPrefix(id, "2"); is {
			wwids["eui."+rest] = true
		}
	}
	files, _ := filepath.Glob(filepath.Join(v.cfg.Sys, "block/*/device/wwid")) // the pattern is right
	for _, file := range files {
		if wwid := text(file); wwids[wwid] && (strings.HasPrefix(wwid, "naa.") || strings.HasPrefix(wwid, "eui.")) {
			names = append(names, filepath.Base(filepath.Dir(filepath.Dir(file))))
		}
	}
	return names
}
