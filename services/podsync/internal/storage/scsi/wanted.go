package scsi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
	"github.com/polylet/polylet/services/podsync/internal/storage/volume"
)

// The kinds of volumes, by the names of their directories.
const (
	iscsi = "iscsi"
	fc    = "fc"
)

// wanted is a volume that a pod wants, wherever that is said.
type wanted struct {
	pod  *v1.Pod
	name string // the volume's in the pod's spec
	dir  string // the volume's place below the pod's directory
	disk disk
	// inline: it is in the pod's own spec, which whoever makes pods has written.
	inline bool
	// block: as a device.
	block    bool
	readOnly bool
	fsType   string
	options  []string
	// called is what its PersistentVolume is called, or the volume in the pod's own spec, and
	// modes are those of the former.
	called string
	modes  []v1.PersistentVolumeAccessMode
	// chapSession: the login is done with the secret's words.
	chapSession bool
	secret      *v1.SecretReference // nil for none
}

// disk is one of a target, or of a fabric.
type disk interface {
	kind() string
	// dir is its place below that of its kind.
	dir() string
	// unique is what Kubernetes calls it on a node.
	unique() v1.UniqueVolumeName
	// turn names what is done one after the other.
	turn() string
	// is says whether another is the same disk, by whatever way.
	is(other disk) bool
	// check refuses what would be read as something else than it is.
	check() error
}

// wantedBy is what is asked for.
func wantedBy(r volume.Request) (*wanted, error) {
	w := &wanted{pod: r.Pod, name: r.Volume.Name, dir: r.Dir, readOnly: r.ReadOnly, inline: r.PV == nil}
	w.called = r.Volume.Name
	if r.PV != nil {
		w.called, w.modes = r.PV.Name, r.PV.Spec.AccessModes
		w.block, w.options = claims.IsDevice(r.PV), claims.MountOptions(r.PV)
	}
	var source *v1.ISCSIPersistentVolumeSource
	switch {
	case r.PV != nil && r.PV.Spec.ISCSI != nil:
		source = r.PV.Spec.ISCSI
	case r.PV != nil && r.PV.Spec.FC != nil:
		w.ofFC(r.PV.Spec.FC)
	case r.PV == nil && r.Volume.ISCSI != nil:
		source = &v1.ISCSIPersistentVolumeSource{
			TargetPortal: r.Volume.ISCSI.TargetPortal, IQN: r.Volume.ISCSI.IQN, Lun: r.Volume.ISCSI.Lun, ISCSIInterface: r.Volume.ISCSI.ISCSIInterface,
			FSType: r.Volume.ISCSI.FSType, Portals: r.Volume.ISCSI.Portals, InitiatorName: r.Volume.ISCSI.InitiatorName,
			SessionCHAPAuth: r.Volume.ISCSI.SessionCHAPAuth,
		}
		if ref := r.Volume.ISCSI.SecretRef; ref != nil {
			source.SecretRef = &v1.SecretReference{Name: ref.Name}
		}
		w.readOnly = r.Volume.ISCSI.ReadOnly
	case r.PV == nil && r.Volume.FC != nil:
		w.ofFC(r.Volume.FC)
		w.readOnly = r.Volume.FC.ReadOnly
	default:
		return nil, podstate.VolumeSpec.Wrap(fmt.Errorf("volume %q is neither of iscsi nor of fc", r.Volume.Name))
	}
	if source != nil {
		if n := len(source.Portals); n > mostPortals {
			return nil, podstate.VolumeSpec.Wrap(fmt.Errorf("iscsi: the volume has %d portals, and this node tries %d at most; correct the volume", n, mostPortals))
		}
		w.ofISCSI(source)
	}
	w.fsType = cmp.Or(w.fsType, "ext4")
	return w, podstate.VolumeSpec.Wrap(errors.Join(w.disk.check(), short(w.disk)))
}

// mostPortals is how many portals a target may have beside the first.
const mostPortals = 63

// short refuses a disk whose names are longer than those of directories may be, before the
// cluster is told of it: it has to fit into the status of the Node, with all others.
func short(d disk) error {
	for part := range strings.SplitSeq(d.dir(), "/") {
		if len(part) > unix.NAME_MAX {
			return fmt.Errorf("%s: the names of the volume's disk are too long together: %d bytes, and %d may be; correct the volume", d.kind(), len(part), unix.NAME_MAX)
		}
	}
	return nil
}

func (w *wanted) ofISCSI(source *v1.ISCSIPersistentVolumeSource) {
	t := &target{
		VolName: w.called, Iqn: source.IQN, Lun: strconv.Itoa(int(source.Lun)), InitIface: cmp.Or(source.ISCSIInterface, "default"), TargetPortal: source.TargetPortal,
	}
	for _, portal := range append([]string{source.TargetPortal}, source.Portals...) {
		if !strings.Contains(portal, ":") {
			portal += ":3260"
		}
		if !slices.Contains(t.Portals, portal) {
			t.Portals = append(t.Portals, portal)
		}
	}
	t.Iface = t.InitIface
	if source.InitiatorName != nil && *source.InitiatorName != "" {
		t.InitiatorName, t.Iface = *source.InitiatorName, t.Portals[0]+":"+w.called
	}
	w.disk, w.fsType = t, source.FSType
	w.chapSession = source.SessionCHAPAuth
	if ref := source.SecretRef; ref != nil && w.chapSession {
		w.secret = &v1.SecretReference{Name: ref.Name, Namespace: cmp.Or(ref.Namespace, w.pod.Namespace)}
	}
}

func (w *wanted) ofFC(source *v1.FCVolumeSource) {
	f := &fabric{}
	if len(source.TargetWWNs) > 0 && source.Lun != nil {
		f.WWNs, f.Lun = source.TargetWWNs, strconv.Itoa(int(*source.Lun))
	} else {
		f.WWIDs = source.WWIDs
	}
	w.disk, w.fsType = f, source.FSType
}

// words reads what CHAP is done with.
func (v *Volumes) words(ctx context.Context, w *wanted) (map[string]string, error) {
	if w.secret == nil {
		return nil, nil
	}
	secret, err := v.deps.Objects.Secret(ctx, w.secret.Namespace, w.secret.Name)
	if err != nil {
		return nil, volume.FromCluster(fmt.Errorf("couldn't get secret %s/%s error: %w", w.secret.Namespace, w.secret.Name, err))
	}
	words := make(map[string]string, len(secret.Data))
	for key, value := range secret.Data {
		words[key] = string(value)
	}
	return words, nil
}

// target is a disk of an iSCSI target; kept as the kubelet keeps it (iscsi.json), with what
// that does not keep.
type target struct {
	VolName       string
	Portals       []string
	Iqn           string
	Lun           string
	InitIface     string
	Iface         string
	InitiatorName string
	// TargetPortal is the first portal as the volume's spec spells it.
	TargetPortal string `json:",omitempty"`
	// Made is what is taken away with the disk; nil when nobody knows.
	Made []made
}

func (t *target) kind() string { return iscsi }
func (t *target) turn() string { return iscsi + " " + t.Iqn }

func (t *target) dir() string {
	return filepath.Join("iface-"+t.Iface, t.Portals[0]+"-"+t.Iqn+"-lun-"+t.Lun)
}

func (t *target) unique() v1.UniqueVolumeName {
	return v1.UniqueVolumeName("kubernetes.io/iscsi/" + cmp.Or(t.TargetPortal, t.Portals[0]) + ":" + t.Iqn + ":" + t.Lun)
}

func (t *target) is(other disk) bool {
	o, same := other.(*target)
	return same && o.Iqn == t.Iqn && o.Lun == t.Lun
}

// cloned says whether the interface was made for this volume.
func (t *target) cloned() bool {
	return t.InitiatorName != "" && t.Iface == t.Portals[0]+":"+t.VolName
}

func (t *target) check() error {
	if len(t.Portals) == 0 {
		return errors.New("iscsi: no target portal")
	}
	if lun, err := strconv.Atoi(t.Lun); err != nil || lun < 0 {
		return fmt.Errorf("iscsi: lun is not a number: %s", t.Lun)
	}
	if err := word("iqn", t.Iqn); err != nil {
		return err
	}
	for _, portal := range t.Portals {
		if err := word("portal", portal); err != nil {
			return err
		}
	}
	if t.InitiatorName != "" {
		if err := word("initiatorName", t.InitiatorName); err != nil {
			return err
		}
	}
	for _, m := range t.Made {
		if err := errors.Join(word("portal", m.Portal), word("interface", m.Iface)); err != nil {
			return err
		}
	}
	return errors.Join(word("iscsiInterface", t.InitIface), word("interface", t.Iface))
}

// word refuses what a program would read as an option, or what is no part of a path.
func word(what, text string) error {
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._:-[]%", r)
	}
	if text == "" || strings.HasPrefix(text, "-") || strings.HasPrefix(text, ".") || strings.ContainsFunc(text, odd) {
		return fmt.Errorf("%s %q has other than letters, digits and ._:-[]%%, or begins with - or a dot; correct the volume", what, text)
	}
	return nil
}

// fabric is a disk of a Fibre Channel fabric: WWNs and Lun, or WWIDs.
type fabric struct {
	WWNs  []string
	Lun   string
	WWIDs []string
}

func (f *fabric) kind() string { return fc }
func (f *fabric) turn() string { return fc + " " + f.dir() }

// ids are what the links to it are called by.
func (f *fabric) ids() []string {
	if len(f.WWNs) > 0 {
		return f.WWNs
	}
	list := make([]string, len(f.WWIDs))
	for i, id := range f.WWIDs {
		list[i] = strings.ReplaceAll(id, " ", "_")
	}
	return list
}

func (f *fabric) dir() string {
	all := strings.Join(f.ids(), "-")
	if len(f.WWNs) > 0 {
		all += "-lun-" + f.Lun
	}
	return all
}

func (f *fabric) unique() v1.UniqueVolumeName {
	if len(f.WWNs) > 0 {
		return v1.UniqueVolumeName(fmt.Sprintf("kubernetes.io/fc/%v:%s", f.WWNs, f.Lun))
	}
	return v1.UniqueVolumeName(fmt.Sprintf("kubernetes.io/fc/%v", f.WWIDs))
}

func (f *fabric) is(other disk) bool {
	o, same := other.(*fabric)
	return same && (o.dir() == f.dir() || o.Lun == f.Lun && slices.ContainsFunc(o.ids(), func(id string) bool { return slices.Contains(f.ids(), id) }))
}

func (f *fabric) check() error {
	if len(f.ids()) == 0 {
		return errors.New("fc: no fc disk information found. failed to make a new mounter")
	}
	for _, id := range f.ids() {
		if err := word("the fc volume's id", id); err != nil {
			return err
		}
	}
	return nil
}
