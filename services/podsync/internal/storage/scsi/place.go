package scsi

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/services/podsync/internal/host/beneath"
)

// place is where a disk is for all pods: its filesystem is mounted there, or it is shown
// there as a device for each.
type place struct {
	path  string
	block bool
	disk  disk
	// others: the disk is something else's of the node, and was given to no pod.
	others bool
	// namespace is that of the pods that it was made for; empty when nobody knows.
	namespace string
	// label is the SELinux label that its filesystem is mounted with; empty for none.
	label string
}

// devicesDir is, below that of a kind, where devices are.
const devicesDir = "volumeDevices"

// recordFile lies in a place of iSCSI, below what is mounted there, as the kubelet has it.
const recordFile = "iscsi.json"

func (v *Volumes) plugins() string { return filepath.Join(v.cfg.RootDir, "plugins", "kubernetes.io") }

// placeOf is where a disk is to be.
func (v *Volumes) placeOf(d disk, block bool) place {
	path := filepath.Join(v.plugins(), d.kind())
	if block {
		path = filepath.Join(path, devicesDir)
	}
	return place{path: filepath.Join(path, d.dir()), block: block, disk: d}
}

// record is what is kept of a place: the volume may hide what lies in it, or show what its
// user has put there. One of a pod's own place, of no disk, says that its files are not all given
// to the pod's group yet.
type record struct {
	Path  string  `json:"path"`
	ISCSI *target `json:"iscsi,omitempty"`
	FC    *fabric `json:"fc,omitempty"`
	// Others and Namespace are place's.
	Others    bool   `json:"others,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// SELinuxMountContext is place's label, as CSI drivers' volumes have it beside them.
	SELinuxMountContext string `json:"seLinuxMountContext,omitempty"`
}

// recordOf is the file with the record of a place.
func (v *Volumes) recordOf(path string) string {
	return filepath.Join(v.cfg.RootDir, "plugins", "polylet~disks", fmt.Sprintf("%x.json", sha256.Sum256([]byte(path))))
}

// keep writes what a place is, before anything is begun with its disk.
func (v *Volumes) keep(p place, mounted bool) error {
	r := record{Path: p.path, Others: p.others, Namespace: p.namespace, SELinuxMountContext: p.label}
	r.ISCSI, _ = p.disk.(*target)
	r.FC, _ = p.disk.(*fabric)
	if err := v.write(r); err != nil { // before the place: one without a record is another agent's
		return err
	}
	if err := os.MkdirAll(p.path, 0o750); err != nil || r.ISCSI == nil || mounted {
		return err
	}
	text, err := json.Marshal(r.ISCSI)
	if err != nil {
		return err
	}
	return fsatomic.WriteFile(filepath.Join(p.path, recordFile), append(text, '\n'), 0o640)
}

func (v *Volumes) write(r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	file := v.recordOf(r.Path)
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	return fsatomic.WriteFile(file, text, 0o640)
}

// forget removes a place that nothing is left of; the record goes last.
func (v *Volumes) forget(p place) error {
	fsatomic.Clean(p.path, recordFile)
	for _, path := range []string{filepath.Join(p.path, recordFile), p.path} {
		if err := removeOne(path); err != nil {
			return err
		}
	}
	if p.disk.kind() == iscsi {
		_ = os.Remove(filepath.Dir(p.path)) // with the interface's last
	}
	return removeOne(v.recordOf(p.path))
}

// left are the places of which something is on the disk, whoever has made them.
func (v *Volumes) left() (all []place, err error) {
	for _, kind := range []string{iscsi, fc} {
		for _, block := range []bool{false, true} {
			below := filepath.Join(v.plugins(), kind)
			if block {
				below = filepath.Join(below, devicesDir)
			}
			parents := []string{below}
			if kind == iscsi {
				if parents, err = dirs(below, "iface-"); err != nil {
					return nil, err
				}
			}
			for _, parent := range parents {
				paths, err := dirs(parent, "")
				if err != nil {
					return nil, err
				}
				for _, path := range paths {
					if p := v.placeAt(kind, path, block); p.disk != nil {
						all = append(all, p)
					}
				}
			}
		}
	}
	return all, nil
}

// placeAt is a place with its disk, by its record, and else by its name; that is nil when it is
// no disk's. A record that is of another place is not believed.
func (v *Volumes) placeAt(kind, path string, block bool) place {
	p := place{path: path, block: block}
	if r, is := v.recordAt(path); is {
		p.others, p.namespace, p.label = r.Others, r.Namespace, r.SELinuxMountContext
		if p.disk = r.FC; r.ISCSI != nil {
			p.disk = r.ISCSI
		}
		return p
	}
	if kind == fc {
		p.disk = fabricNamed(filepath.Base(path))
	} else {
		p.disk = targetNamed(filepath.Base(filepath.Dir(path)), filepath.Base(path))
	}
	return p
}

// recordAt is the record of a place, with its one disk; not one that cannot be believed.
func (v *Volumes) recordAt(path string) (r record, is bool) {
	text, err := os.ReadFile(v.recordOf(path))
	if err != nil || json.Unmarshal(text, &r) != nil || r.Path != path {
		return record{}, false
	}
	switch {
	case r.ISCSI != nil && r.ISCSI.check() == nil && lies(path, r.ISCSI):
		r.FC = nil
	case r.FC != nil && r.FC.check() == nil && lies(path, r.FC):
		r.ISCSI = nil
	default:
		return record{}, false
	}
	return r, true
}

// lies says whether a place is that of a disk.
func lies(path string, d disk) bool { return strings.HasSuffix(path, "/"+d.dir()) }

// targetNamed reads the names of a place's directories: iface-IFACE, PORTAL-IQN-lun-LUN.
func targetNamed(iface, name string) disk {
	t := &target{Iface: strings.TrimPrefix(iface, "iface-")}
	t.InitIface = t.Iface
	at := strings.LastIndex(name, "-lun-")
	if at < 0 {
		return nil
	}
	before := name[:at]
	t.Lun = name[at+len("-lun-"):]
	for _, kind := range []string{"-iqn.", "-eui.", "-naa."} {
		if i := strings.Index(before, kind); i > 0 {
			t.Portals, t.Iqn = []string{before[:i]}, before[i+1:]
			if t.check() != nil {
				return nil
			}
			return t
		}
	}
	return nil
}

// fabricNamed reads the name of a place's directory: WWN-WWN-lun-LUN or WWID-WWID.
func fabricNamed(name string) disk {
	f := &fabric{}
	if name == devicesDir {
		return nil
	}
	if before, lun, is := strings.Cut(name, "-lun-"); is {
		f.WWNs, f.Lun = strings.Split(before, "-"), lun
	} else {
		f.WWIDs = strings.Split(name, "-")
	}
	if f.check() != nil {
		return nil
	}
	return f
}

// recorded is what another agent has kept in a place of iSCSI, which is not mounted any
// more; t when that is nothing that can be believed.
func recorded(path string, t *target) *target {
	f, err := beneath.Open(path, filepath.Join(path, recordFile))
	if err != nil {
		return t
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 64<<10))
	var kept target
	if err != nil || json.Unmarshal(text, &kept) != nil || kept.check() != nil || kept.Iqn != t.Iqn || kept.Lun != t.Lun {
		return t
	}
	return &kept
}

// Left are the volumes of which something is on the disk. Records of places that are gone
// go, too: a crash has kept them.
func (v *Volumes) Left() (names []v1.UniqueVolumeName, err error) {
	all, err := v.left()
	if err != nil {
		return nil, err
	}
	kept, err := filepath.Glob(filepath.Join(filepath.Dir(v.recordOf("")), "*.json"))
	for _, file := range kept {
		var r record
		if text, err := os.ReadFile(file); err != nil || json.Unmarshal(text, &r) != nil {
			continue
		}
		if _, err := os.Lstat(r.Path); errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(file) // with the next start
		}
	}
	for _, p := range all {
		names = append(names, p.disk.unique())
	}
	return names, err
}

// dirs lists the directories in a directory whose names begin with something, with their
// paths; none when it does not exist.
func dirs(dir, prefix string) (list []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), prefix) && e.Name() != devicesDir {
			list = append(list, filepath.Join(dir, e.Name()))
		}
	}
	return list, err
}

// removeOne removes one file or empty directory; one that is not there is fine.
func removeOne(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
