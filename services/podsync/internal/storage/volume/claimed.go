package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/services/podsync/internal/cluster/objects"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/claims"
	"github.com/polylet/polylet/services/podsync/internal/storage/mount"
)

// Claims reads claims and what they are bound to; *objects.Store has it.
type Claims interface {
	Claim(ctx context.Context, uid types.UID, namespace, name string) (*v1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, uid types.UID, namespace, name string) (*v1.PersistentVolume, error)
	// Await tells that an object is another than the pod has seen, once it is.
	Await(uid types.UID, namespace string, key objects.Key, seen runtime.Object)
	// Node is the own node.
	Node(ctx context.Context) (*v1.Node, error)
}

// claimed are the volumes of claims; on the disk are those that are bound to local ones.
// Of others the plugin's own Driver takes what is there down.
type claimed struct{ set *Set }

// ofClaim says whether a volume is one that a claim is bound to,
// or that is made as if it were.
func ofClaim(v *v1.Volume) bool {
	return v.PersistentVolumeClaim != nil || v.Ephemeral != nil || claims.InTree(v)
}

// Setup makes one.
func (d claimed) Setup(ctx context.Context, r Request) (Made, error) {
	ref, _ := claims.Of(r.Pod, r.Volume)
	path, err := d.set.claimed(ctx, &r, ref)
	b, _ := d.set.boundOf(r.Pod.UID, r.Volume.Name)
	return Made{Path: path, device: b.Device || r.PV != nil && claims.IsDevice(r.PV), migrated: b.Migrated || r.Migrated, pv: r.PV, called: r.Called}, err
}

// Teardown takes a local one down.
func (d claimed) Teardown(ctx context.Context, v Remains) error {
	return d.set.removeLocal(ctx, v.UID, v.Name, v.Dir)
}

// claimed makes a volume that comes of a claim. Beside an error its path is that of what
// a previous run has set up. r says what volume it is, as far as that is known.
func (s *Set) claimed(ctx context.Context, r *Request, ref claims.Reference) (string, error) {
	pod, v := r.Pod, r.Volume
	before, known := s.boundOf(pod.UID, v.Name)
	if before.fresh {
		return before.Path, nil // what becomes of the claim changes nothing for who uses it
	}
	if !known {
		before, known = s.keptBound(pod.UID, v.Name)
	}
	claim, err := s.resolveSome(ctx, r, ref)
	if err == nil && known && before.PV != r.PV.Name {
		err = podstate.VolumeAsSaid.Wrap(ref.Failed(fmt.Errorf("it is bound to PersistentVolume %q now, and the pod was given %q; delete the pod", r.PV.Name, before.PV)))
		r.PV = nil // it is about both
	}
	if err == nil {
		err = s.attach(ctx, r)
	}
	if err == nil {
		r := *r // who works on it may go on
		err = s.work(ctx, pod.UID, v.Name+" "+r.PV.Name, func(ctx context.Context, c *chown) error {
			return s.mountBound(ctx, r, ref, claim, c)
		})
	}
	if err != nil {
		if path := s.standing(pod.UID, v.Name, before, known); path != "" {
			return path, err
		}
		now, _ := s.boundOf(pod.UID, v.Name)
		return now.Path, err
	}
	now, _ := s.boundOf(pod.UID, v.Name)
	return now.Path, nil
}

// attach waits until a volume is attached to the node, if it is one that has to be, and
// says where it lies.
func (s *Set) attach(ctx context.Context, r *Request) (err error) {
	if claims.IsDevice(r.PV) {
		defer func() { err = podstate.OfDevice(err) }()
	}
	if claims.IsDisk(r.PV) {
		return s.attachDisk(ctx, r)
	}
	if claims.Kind(r.PV) != claims.CSI {
		return nil
	}
	r.Dir = s.volumeDir(r.Pod.UID, pluginCSI, r.PV.Name)
	if claims.IsDevice(r.PV) {
		r.Dir = s.deviceLink(r.Pod.UID, pluginCSI, r.PV.Name)
	}
	if d, may := s.deps.CSI.(Attacher); may {
		return d.Attach(ctx, *r)
	}
	return podstate.VolumeUnsupported.Wrap(errors.New("this node has no CSI drivers"))
}

// resolveSome is resolve, for so many volumes of a pod at once: a spec may name hundreds.
func (s *Set) resolveSome(ctx context.Context, r *Request, ref claims.Reference) (*v1.PersistentVolumeClaim, error) {
	leave, err := s.lane(ctx, r.Pod.UID, "claims")
	if err != nil {
		return nil, err
	}
	defer leave()
	return s.resolve(ctx, r, ref)
}

// resolve finds the volume that a claim is bound to for a request, and returns the claim,
// of which a volume of before CSI has none. What may come right by itself is awaited.
func (s *Set) resolve(ctx context.Context, r *Request, ref claims.Reference) (claim *v1.PersistentVolumeClaim, err error) {
	pod, v := r.Pod, r.Volume
	r.ReadOnly = ref.ReadOnly
	if claims.InTree(v) {
		if r.PV, r.Called, err = claims.Inline(pod.Namespace, v); err != nil {
			return nil, err
		}
		r.Migrated = true
		return nil, s.mayUse(ctx, pod, v, r.PV)
	}
	awaits := func(kind objects.Kind, namespace, name string, seen runtime.Object) {
		s.deps.Claims.Await(pod.UID, pod.Namespace, objects.Key{Kind: kind, Namespace: namespace, Name: name}, seen)
	}
	claim, err = s.deps.Claims.Claim(ctx, pod.UID, ref.Namespace, ref.Name)
	if err != nil {
		awaits(objects.PersistentVolumeClaim, ref.Namespace, ref.Name, nil)
		return nil, FromCluster(ref.Failed(fmt.Errorf("failed to fetch PVC from API server: %w", err)))
	}
	if err := ref.Check(pod, claim); err != nil {
		awaits(objects.PersistentVolumeClaim, ref.Namespace, ref.Name, claim)
		return nil, err
	}
	pv, err := s.deps.Claims.PersistentVolume(ctx, pod.UID, pod.Namespace, claim.Spec.VolumeName)
	if err != nil {
		awaits(objects.PersistentVolume, "", claim.Spec.VolumeName, nil)
		return nil, FromCluster(ref.Failed(fmt.Errorf("failed to fetch PV %s from API server: %w", claim.Spec.VolumeName, err)))
	}
	if err := ref.CheckVolume(claim, pv); err != nil {
		awaits(objects.PersistentVolume, "", pv.Name, pv)
		return nil, err
	}
	if r.PV, err = claims.Translate(pv); err != nil {
		return nil, ref.Failed(err)
	}
	r.Migrated, r.Called = r.PV != pv, r.PV.Name
	return claim, s.mayUse(ctx, pod, v, r.PV)
}

// mayUse says why a volume cannot be used here by this pod; nil when it can.
func (s *Set) mayUse(ctx context.Context, pod *v1.Pod, v *v1.Volume, pv *v1.PersistentVolume) error {
	if err := component("PersistentVolume", pv.Name); err != nil {
		return err
	}
	if err := claims.CheckMode(pod, v.Name, pv); err != nil {
		return err
	}
	if err := claims.CheckKind(pv); err != nil {
		return err
	}
	if pv.Spec.NodeAffinity == nil {
		return nil
	}
	node, err := s.deps.Claims.Node(ctx)
	if err != nil {
		return podstate.VolumeNodeUnread.Wrap(err)
	}
	return claims.CheckNode(pv, node.Labels)
}

// mountBound sets a volume up for a pod, as the only one that works on it; of CSI drivers'
// volumes those see to that themselves.
func (s *Set) mountBound(ctx context.Context, r Request, ref claims.Reference, claim *v1.PersistentVolumeClaim, c *chown) error {
	pod, v, pv := r.Pod, r.Volume, r.PV
	done, err := s.handles.TakeWithin(ctx, pv.Name)
	if err != nil {
		return err
	}
	end := sync.OnceFunc(done)
	defer end()
	if claims.ForOnePod(pv) {
		used, err := s.usedElsewhere(pv, pod.UID)
		if used && err == nil {
			end()
			err = cmp.Or(s.conflict(ctx, r), claims.ErrInUse)
		}
		if err != nil && claims.IsDevice(pv) {
			err = podstate.InStep("MapVolume.SetUpDevice", err)
		}
		if err != nil {
			return err
		}
	}
	b := s.boundAs(pod, ref, pv)
	if r.Called != pv.Name {
		b.Called = r.Called
	}
	before, kept := s.keptBound(pod.UID, v.Name)
	b.Begun, b.Labelled, b.Migrated = before.Begun || !s.lies(b), before.Labelled, r.Migrated
	if b.Served, err = s.isServedLocal(pv); err != nil {
		return err
	}
	if err := s.keepBound(pod.UID, v.Name, b); err != nil {
		return err
	}
	err = s.mountAs(ctx, r, ref, &b, end, c)
	s.tellOfFilesystem(pv, err)
	if err == nil && claim != nil {
		end()
		err = s.grown(ctx, r, claim, b)
	}
	if err != nil {
		s.notBound(pod.UID, v.Name, b, kept)
		return err
	}
	return s.madeBound(pod, v.Name, b, kept)
}

// conflict is why a volume's driver keeps it from a pod while another has it; nil for no reason
// of its own.
func (s *Set) conflict(ctx context.Context, r Request) error {
	var of Driver
	switch {
	case r.PV.Spec.CSI != nil:
		of = s.deps.CSI
	case claims.IsDisk(r.PV):
		of = s.deps.Disks
	}
	if d, refuses := of.(Refuser); refuses {
		return d.Conflict(ctx, r)
	}
	return nil
}

// mountAs sets a volume up by what it is, and notes in b what that says of it; end ends
// the turn of the only one who works on it.
func (s *Set) mountAs(ctx context.Context, r Request, ref claims.Reference, b *bound, end func(), c *chown) error {
	pod, pv := r.Pod, r.PV
	switch {
	case b.Kind == claims.Local && b.Device:
		return s.localBlock(pod, pv, *b)
	case b.Kind == claims.Local:
		return s.local(ctx, pod, ref, pv, *b, c)
	case b.Kind == claims.CSI:
		end()
		made, err := s.drive(ctx, r, pv.Spec.CSI.Driver)
		b.labelled(made, err)
		return err
	case claims.IsDisk(pv):
		end()
		b.global = s.globalOf(r)
		made, err := s.makeDisk(ctx, r)
		b.labelled(made, err)
		return err
	case b.Kind == claims.NFS:
		end()
		return s.claimedNFS(ctx, pod.UID, ref, pv, b.Path)
	}
	if err := claims.CheckNoOptions(pv); err != nil {
		return err
	}
	end()
	return s.hostPath(ctx, pod.UID, r.Volume.Name, pv.Spec.HostPath)
}

// labelled notes whether the volume is mounted with its pod's label, once it is set up.
func (b *bound) labelled(made Made, err error) {
	if err == nil {
		b.Begun, b.Labelled = b.Begun || b.Labelled != made.Labelled, made.Labelled
	}
}

// notBound lets others have a volume that could not be set up, unless something of it is
// there, or may come: who mounts it from a server may be late. known: it was known before
// that the pod has it.
func (s *Set) notBound(pod types.UID, volume string, b bound, known bool) {
	switch {
	case known || b.Served && b.Begun:
	case b.Kind == claims.HostPath || !s.lies(b):
		_ = os.Remove(s.boundFile(pod, volume))
	default:
		s.standing(pod, volume, b, true) // if another agent has set it up
	}
}

// tellOfFilesystem tells that a volume's device could not be mounted, and has another
// filesystem than its PersistentVolume says.
func (s *Set) tellOfFilesystem(pv *v1.PersistentVolume, err error) {
	if other := (*mount.OtherFilesystem)(nil); errors.As(err, &other) && s.deps.Events != nil {
		s.deps.Events.Volume(pv, v1.EventTypeWarning, "FailedMountOnFilesystemMismatch", fmt.Sprintf("MountVolume failed for volume %q %v", pv.Name, other))
	}
}

// madeBound keeps that a volume is set up; known: it was known before that the pod has it.
func (s *Set) madeBound(pod *v1.Pod, volume string, b bound, known bool) error {
	if b.Begun {
		b.Begun = false
		if err := s.keepBound(pod.UID, volume, b); err != nil {
			return err
		}
	}
	s.setBound(pod.UID, volume, b)
	if b.Device && !known {
		s.tellOfDevice(pod, b)
	}
	return nil
}

// boundAs says where a volume of a claim will lie.
func (s *Set) boundAs(pod *v1.Pod, ref claims.Reference, pv *v1.PersistentVolume) bound {
	b := bound{Claim: ref.Name, PV: pv.Name, Kind: claims.Kind(pv), Device: claims.IsDevice(pv), fresh: true}
	of := pluginOf(b.Kind)
	if group, has := claims.Group(pv); has {
		b.Group = &group
	}
	switch {
	case b.Device:
		b.Path = s.deviceLink(pod.UID, of, pv.Name)
	case b.Kind == claims.HostPath:
		b.Path = pv.Spec.HostPath.Path
	case b.Kind == claims.CSI:
		b.Path = filepath.Join(s.volumeDir(pod.UID, pluginCSI, pv.Name), csiMount)
	default:
		b.Path = s.volumeDir(pod.UID, of, pv.Name)
	}
	return b
}

// csiMount is where in its directory a CSI driver's volume is.
const csiMount = "mount"
