// Package fakecsi is a CSI driver for tests: a node service whose volumes lie where a
// function mounts them, the registration API beside it, and a controller service for a
// cluster that provisions, attaches and grows volumes, with faults on command.
//
// It owns what it was asked for, and holds its caller to what the CSI spec wants of one.
// It must never keep what is not on the disk: after a driver that was killed the next one
// goes on.
package fakecsi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Config of a Driver.
type Config struct {
	// Name of the driver, and NodeID, its name of the node.
	Name, NodeID string
	// MaxVolumes and Topology are what it says of the node.
	MaxVolumes int64
	Topology   map[string]string
	// Can are its abilities.
	Can []csi.NodeServiceCapability_RPC_Type

	// Condition is what NodeGetVolumeStats says beside, as it goes over the wire; nil for
	// nothing. See SaidOf.
	Condition []byte

	// Mount mounts a volume on a directory that is there, and Unmount ends that.
	// Mounted says whether something is mounted there.
	Mount   func(volume, target string, readOnly bool) error
	Unmount func(target string) error
	// Bind mounts what is staged on a directory that is there; only for a driver that
	// stages (STAGE_UNSTAGE_VOLUME among its abilities).
	Bind func(staged, target string, readOnly bool) error
	// Flagged does what Mount does, and what Bind does where staged is not empty, with mount
	// flags; nil for a driver that has no use for them.
	Flagged func(volume, staged, target string, readOnly bool, flags []string) error
	// Device makes a device of a volume at a path where nothing is, and Free ends what
	// is behind it once it is at no path any more; nil for a driver without devices.
	Device  func(volume, target string) error
	Free    func(volume string) error
	Mounted func(target string) (bool, error)
	// Grow gives what is at a path another size; only for a driver that grows volumes
	// (EXPAND_VOLUME among its abilities). May be nil.
	Grow func(volume, path string, bytes int64) error

	// Volumes is a directory in which a controller service keeps what it makes; empty for
	// a driver without one. Only what it has made and attached is staged then.
	Volumes string

	// Fault is asked before and after each call ("NodePublishVolume",
	// "NodePublishVolume done" …): an error is what the call ends with, and it may
	// wait. May be nil.
	Fault func(ctx context.Context, at string) error
	// Asked is told of each request before anything else is done with it, with the call's
	// name. May be nil.
	Asked func(call string, request any)
}

// CanSayCondition is the ability VOLUME_CONDITION of the CSI spec until 1.12.
const CanSayCondition = csi.NodeServiceCapability_RPC_Type(4)

// SaidOf is a volume's condition as a driver of the CSI spec until 1.12 sends it.
func SaidOf(abnormal bool, message string) []byte {
	var inner []byte
	inner = protowire.AppendTag(inner, 1, protowire.VarintType)
	inner = protowire.AppendVarint(inner, protowire.EncodeBool(abnormal))
	inner = protowire.AppendTag(inner, 2, protowire.BytesType)
	inner = protowire.AppendString(inner, message)
	return protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), inner)
}

// Driver is a CSI driver; safe for concurrent use.
type Driver struct {
	csi.UnimplementedNodeServer
	csi.UnimplementedIdentityServer
	registration.UnimplementedRegistrationServer
	cfg      Config
	endpoint string

	mu        sync.Mutex
	calls     []string
	published []*csi.NodePublishVolumeRequest
	staged    []*csi.NodeStageVolumeRequest
	expanded  []*csi.NodeExpandVolumeRequest
	told      []string
	busy      map[string]bool // volumes with an operation under way
	most      int64           // as Config.MaxVolumes
}

// New makes a Driver; it serves nothing.
func New(cfg Config) *Driver {
	if cfg.Fault == nil {
		cfg.Fault = func(context.Context, string) error { return nil }
	}
	return &Driver{cfg: cfg, busy: map[string]bool{}, most: cfg.MaxVolumes}
}

// Serve serves the driver at a socket in dir, and its registration in registry, until
// stop is called. Sockets of one that was killed are replaced.
func (d *Driver) Serve(dir, registry string) (stop func(), err error) {
	d.endpoint = filepath.Join(dir, d.cfg.Name+".sock")
	own, err := listen(d.endpoint)
	if err != nil {
		return nil, err
	}
	reg, err := listen(filepath.Join(registry, d.cfg.Name+"-reg.sock"))
	if err != nil {
		_ = own.Close()
		return nil, err
	}
	node, registrar := grpc.NewServer(grpc.UnaryInterceptor(d.tell)), grpc.NewServer()
	csi.RegisterNodeServer(node, d)
	csi.RegisterIdentityServer(node, d)
	registration.RegisterRegistrationServer(registrar, d)
	if d.cfg.Volumes != "" {
		csi.RegisterControllerServer(node, &controller{Driver: d, dir: d.cfg.Volumes})
	}
	var served sync.WaitGroup
	served.Go(func() { _ = node.Serve(own) })
	served.Go(func() { _ = registrar.Serve(reg) })
	return sync.OnceFunc(func() {
		registrar.Stop()
		node.Stop()
		served.Wait()
	}), nil
}

// tell tells of a request and has it answered.
func (d *Driver) tell(ctx context.Context, r any, of *grpc.UnaryServerInfo, answer grpc.UnaryHandler) (any, error) {
	if d.cfg.Asked != nil {
		d.cfg.Asked(path.Base(of.FullMethod), r)
	}
	return answer(ctx, r)
}

func listen(at string) (net.Listener, error) {
	if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", at)
}

// Calls are the calls so far, by their names, without questions about the driver.
func (d *Driver) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// Busy says whether an operation with a volume is under way: another one is refused.
func (d *Driver) Busy(volume string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.busy[volume]
}

// Published are the requests to publish so far.
func (d *Driver) Published() []*csi.NodePublishVolumeRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.published)
}

// SetMaxVolumes changes how many volumes the driver says that the node can have.
func (d *Driver) SetMaxVolumes(most int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.most = most
}

// Staged are the requests to stage so far.
func (d *Driver) Staged() []*csi.NodeStageVolumeRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.staged)
}

// Expanded are the requests to grow so far.
func (d *Driver) Expanded() []*csi.NodeExpandVolumeRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.expanded)
}

// Told is what the node said of the registration, one line for each time.
func (d *Driver) Told() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.told)
}

// GetInfo implements the registration API.
func (d *Driver) GetInfo(ctx context.Context, _ *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: d.cfg.Name, Endpoint: d.endpoint, SupportedVersions: []string{"1.0.0"},
	}, d.cfg.Fault(ctx, "GetInfo")
}

// NotifyRegistrationStatus implements the registration API.
func (d *Driver) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.told = append(d.told, strings.TrimSpace(fmt.Sprintf("%v %s", s.GetPluginRegistered(), s.GetError())))
	return &registration.RegistrationStatusResponse{}, nil
}

// GetPluginInfo implements CSI.
func (d *Driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.cfg.Name, VendorVersion: "test"}, nil
}

// NodeGetInfo implements CSI.
func (d *Driver) NodeGetInfo(ctx context.Context, _ *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	if err := d.cfg.Fault(ctx, "NodeGetInfo"); err != nil {
		return nil, err
	}
	d.mu.Lock()
	most := d.most
	d.mu.Unlock()
	answer := &csi.NodeGetInfoResponse{NodeId: d.cfg.NodeID, MaxVolumesPerNode: most}
	if d.cfg.Topology != nil {
		answer.AccessibleTopology = &csi.Topology{Segments: d.cfg.Topology}
	}
	return answer, nil
}

// NodeGetCapabilities implements CSI.
func (d *Driver) NodeGetCapabilities(ctx context.Context, _ *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	if err := d.cfg.Fault(ctx, "NodeGetCapabilities"); err != nil {
		return nil, err
	}
	answer := &csi.NodeGetCapabilitiesResponse{}
	for _, can := range d.cfg.Can {
		answer.Capabilities = append(answer.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: can}},
		})
	}
	return answer, nil
}

// NodePublishVolume implements CSI.
func (d *Driver) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	d.mu.Lock()
	d.published = append(d.published, r)
	d.mu.Unlock()
	err := d.operate(ctx, "NodePublishVolume", r.GetVolumeId(), r.GetTargetPath(), func() error {
		if r.GetVolumeCapability().GetBlock() != nil && d.cfg.Device != nil {
			return d.publishDevice(r)
		}
		if r.GetVolumeCapability().GetMount() == nil {
			return status.Error(codes.InvalidArgument, "the volume's capability is none of a file system")
		}
		mounted, err := d.cfg.Mounted(r.GetTargetPath())
		if err != nil || mounted {
			return err
		}
		if err := os.Mkdir(r.GetTargetPath(), 0o750); err != nil && !errors.Is(err, os.ErrExist) {
			return err // its parent is the caller's to make
		}
		return d.publish(r)
	})
	return &csi.NodePublishVolumeResponse{}, err
}

// publishDevice makes a device at the target, whose parent is the caller's to make.
func (d *Driver) publishDevice(r *csi.NodePublishVolumeRequest) error {
	if info, err := os.Stat(r.GetStagingTargetPath()); d.stages() && (err != nil || !info.IsDir()) {
		return status.Error(codes.FailedPrecondition, "the volume is not staged")
	}
	if _, err := os.Stat(r.GetTargetPath()); err == nil {
		return nil
	}
	return d.cfg.Device(r.GetVolumeId(), r.GetTargetPath())
}

// publish mounts a volume in a pod's place: what is staged, if it was to be.
func (d *Driver) publish(r *csi.NodePublishVolumeRequest) error {
	if r.GetStagingTargetPath() == "" {
		return d.mount(r.GetVolumeId(), r.GetTargetPath(), r.GetReadonly(), r.GetVolumeCapability())
	}
	if !d.stages() {
		return status.Error(codes.InvalidArgument, "this driver does not stage")
	}
	if staged, err := d.cfg.Mounted(r.GetStagingTargetPath()); err != nil || !staged {
		return errors.Join(status.Error(codes.FailedPrecondition, "the volume is not staged"), err)
	}
	if flags := r.GetVolumeCapability().GetMount().GetMountFlags(); d.cfg.Flagged != nil && len(flags) > 0 {
		return d.cfg.Flagged(r.GetVolumeId(), r.GetStagingTargetPath(), r.GetTargetPath(), r.GetReadonly(), flags)
	}
	return d.cfg.Bind(r.GetStagingTargetPath(), r.GetTargetPath(), r.GetReadonly())
}

// mount mounts a volume, as its capability says.
func (d *Driver) mount(volume, target string, readOnly bool, as *csi.VolumeCapability) error {
	if flags := as.GetMount().GetMountFlags(); d.cfg.Flagged != nil && len(flags) > 0 {
		return d.cfg.Flagged(volume, "", target, readOnly, flags)
	}
	return d.cfg.Mount(volume, target, readOnly)
}

func (d *Driver) stages() bool {
	return slices.Contains(d.cfg.Can, csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
}

// NodeStageVolume implements CSI.
func (d *Driver) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	d.mu.Lock()
	d.staged = append(d.staged, r)
	d.mu.Unlock()
	err := d.operate(ctx, "NodeStageVolume", r.GetVolumeId(), r.GetStagingTargetPath(), func() error {
		if !d.stages() || r.GetVolumeCapability() == nil {
			return status.Error(codes.InvalidArgument, "this driver does not stage, or the volume's capability is missing")
		}
		if err := d.attached(r); err != nil {
			return err
		}
		if r.GetVolumeCapability().GetBlock() != nil {
			_, err := os.Stat(r.GetStagingTargetPath()) // the caller's to make
			return err
		}
		if mounted, err := d.cfg.Mounted(r.GetStagingTargetPath()); err != nil || mounted {
			return err
		}
		return d.mount(r.GetVolumeId(), r.GetStagingTargetPath(), false, r.GetVolumeCapability()) // the directory is the caller's to make
	})
	return &csi.NodeStageVolumeResponse{}, err
}

// NodeUnstageVolume implements CSI.
func (d *Driver) NodeUnstageVolume(ctx context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	err := d.operate(ctx, "NodeUnstageVolume", r.GetVolumeId(), r.GetStagingTargetPath(), func() error {
		if d.cfg.Free != nil {
			if err := d.cfg.Free(r.GetVolumeId()); err != nil {
				return err
			}
		}
		if mounted, err := d.cfg.Mounted(r.GetStagingTargetPath()); err != nil || !mounted {
			return err
		}
		return d.cfg.Unmount(r.GetStagingTargetPath())
	})
	return &csi.NodeUnstageVolumeResponse{}, err
}

// NodeGetVolumeStats implements CSI: a volume of 100 bytes and 10 inodes, of which 40 and
// 4 are taken.
func (d *Driver) NodeGetVolumeStats(ctx context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if err := d.cfg.Fault(ctx, "NodeGetVolumeStats"); err != nil {
		return nil, err
	}
	if there, err := d.cfg.Mounted(r.GetVolumePath()); err != nil || !there {
		return nil, status.Errorf(codes.NotFound, "volume %s is not at %s", r.GetVolumeId(), r.GetVolumePath())
	}
	answer := &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: 100, Used: 40, Available: 60}, {Unit: csi.VolumeUsage_INODES, Total: 10, Used: 4, Available: 6},
	}}
	if d.cfg.Condition != nil {
		answer.ProtoReflect().SetUnknown(d.cfg.Condition)
	}
	return answer, nil
}

// NodeExpandVolume implements CSI.
func (d *Driver) NodeExpandVolume(ctx context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	d.mu.Lock()
	d.expanded = append(d.expanded, r)
	d.mu.Unlock()
	err := d.operate(ctx, "NodeExpandVolume", r.GetVolumeId(), r.GetVolumePath(), func() error {
		if !slices.Contains(d.cfg.Can, csi.NodeServiceCapability_RPC_EXPAND_VOLUME) {
			return status.Error(codes.Unimplemented, "this driver does not grow volumes")
		}
		if _, err := os.Stat(r.GetVolumePath()); err != nil || r.GetCapacityRange().GetRequiredBytes() <= 0 || d.stages() != (r.GetStagingTargetPath() != "") {
			return status.Error(codes.InvalidArgument, "the volume is not there, or its size or where it is staged does not make sense")
		}
		if d.cfg.Grow == nil {
			return nil
		}
		return d.cfg.Grow(r.GetVolumeId(), r.GetVolumePath(), r.GetCapacityRange().GetRequiredBytes())
	})
	return &csi.NodeExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes()}, err
}

// NodeUnpublishVolume implements CSI.
func (d *Driver) NodeUnpublishVolume(ctx context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	err := d.operate(ctx, "NodeUnpublishVolume", r.GetVolumeId(), r.GetTargetPath(), func() error {
		if mounted, err := d.cfg.Mounted(r.GetTargetPath()); err != nil {
			return err
		} else if mounted {
			if err := d.cfg.Unmount(r.GetTargetPath()); err != nil {
				return err
			}
		}
		if err := os.Remove(r.GetTargetPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	})
	return &csi.NodeUnpublishVolumeResponse{}, err
}

// operate does something with a volume, one thing at a time.
func (d *Driver) operate(ctx context.Context, call, volume, target string, do func() error) error {
	if volume == "" || !filepath.IsAbs(target) {
		return status.Error(codes.InvalidArgument, "the volume's id and its target path must be set")
	}
	d.mu.Lock()
	d.calls = append(d.calls, call)
	busy := d.busy[volume]
	d.busy[volume] = true
	d.mu.Unlock()
	if busy {
		return status.Errorf(codes.Aborted, "an operation with volume %s is under way", volume)
	}
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.busy, volume)
	}()
	if err := d.cfg.Fault(ctx, call); err != nil {
		return err
	}
	if err := do(); err != nil {
		if _, said := status.FromError(err); said {
			return err
		}
		return status.Error(codes.Internal, err.Error())
	}
	return d.cfg.Fault(ctx, call+" done")
}
