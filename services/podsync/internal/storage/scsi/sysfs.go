package scsi

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// session is one with an iSCSI target, as the kernel shows it.
type session struct {
	host    int
	path    string
	portals []string
}

// sessions are those with a target. One that ends meanwhile is none.
func (v *Volumes) sessions(iqn string) (all []session, err error) {
	hosts, err := filepath.Glob(filepath.Join(v.cfg.Sys, "class/iscsi_host/host*"))
	if err != nil {
		return nil, err
	}
	for _, host := range hosts {
		number, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(host), "host"))
		if err != nil {
			continue
		}
		paths, err := filepath.Glob(filepath.Join(host, "device/session*"))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			name := filepath.Base(path)
			if text(path, "iscsi_session", name, "targetname") == iqn {
				all = append(all, session{number, path, portalsOf(path)})
			}
		}
	}
	return all, nil
}

// portalsOf are the portals that a session goes to, as they are and as they were asked for.
func portalsOf(session string) (all []string) {
	connections, _ := filepath.Glob(filepath.Join(session, "connection*")) // the pattern is right
	for _, path := range connections {
		of := func(name string) string { return text(path, "iscsi_connection", filepath.Base(path), name) }
		for _, kind := range []string{"", "persistent_"} {
			if address, port := of(kind+"address"), of(kind+"port"); address != "" && port != "" {
				all = append(all, net.JoinHostPort(address, port))
			}
		}
	}
	return all
}

// text is what a file says; empty when it is not there.
func text(path ...string) string {
	raw, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// disksOf are the names of the disks of a session; lun is a number, or * for all.
func disksOf(s session, lun string) (names []string, err error) {
	// Channel and target are always 0 with iSCSI.
	found, err := filepath.Glob(filepath.Join(s.path, fmt.Sprintf("target%d:0:0/%d:0:0:%s/block/*", s.host, s.host, lun)))
	for _, path := range found {
		names = append(names, filepath.Base(path))
	}
	return names, err
}

// disksOfTarget are the names of all disks that are one LUN of a target.
func (v *Volumes) disksOfTarget(iqn, lun string) (names []string, err error) {
	sessions, err := v.sessions(iqn)
	for _, s := range sessions {
		of, err := disksOf(s, lun)
		if err != nil {
			return nil, err
		}
		names = append(names, of...)
	}
	return names, err
}

// multipath is the device that several paths with a disk are, by its name; empty when there
// is none. Others that are made of disks, such as logical volumes, are not meant.
func (v *Volumes) multipath(disk string) string {
	if strings.HasPrefix(disk, "dm-") {
		return disk
	}
	found, _ := filepath.Glob(filepath.Join(v.cfg.Sys, "block/dm-*/slaves", disk)) // the pattern is right
	for _, path := range found {
		dm := filepath.Dir(filepath.Dir(path))
		if uuid := text(dm, "dm/uuid"); uuid == "" || strings.HasPrefix(uuid, "mpath-") {
			return filepath.Base(dm)
		}
	}
	return ""
}

// slaves are the disks that a device is made of; itself when it is a disk.
func (v *Volumes) slaves(name string) ([]string, error) {
	if !strings.HasPrefix(name, "dm-") {
		return []string{name}, nil
	}
	entries, err := os.ReadDir(filepath.Join(v.cfg.Sys, "block", name, "slaves"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list, nil
}

// named is the name of the device at the end of a link; empty when it leads elsewhere.
func (v *Volumes) named(link string) string {
	to, err := filepath.EvalSymlinks(link)
	dev, devErr := filepath.EvalSymlinks(v.cfg.Dev)
	if err != nil || devErr != nil || filepath.Dir(to) != dev {
		return ""
	}
	return filepath.Base(to)
}

// multipathOf is the multipath device of some disks; empty when they have none.
func (v *Volumes) multipathOf(disks []string) string {
	for _, disk := range disks {
		if dm := v.multipath(disk); dm != "" {
			return dm
		}
	}
	return ""
}

// byMultipath sorts disks by the multipath devices that they are paths of.
func (v *Volumes) byMultipath(disks []string) (dms []string) {
	for _, disk := range disks {
		if dm := v.multipath(disk); dm != "" && !slices.Contains(dms, dm) {
			dms = append(dms, dm)
		}
	}
	return dms
}
