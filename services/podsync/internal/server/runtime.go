package server

import (
	"context"
	"fmt"
	"sort"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

// GetRuntime implements PodSyncService.
func (s *Server) GetRuntime(context.Context, *podsyncv1.GetRuntimeRequest) (*podsyncv1.GetRuntimeResponse, error) {
	st := s.deps.State()
	resp := &podsyncv1.GetRuntimeResponse{
		Name: st.Version.GetRuntimeName(), Version: st.Version.GetRuntimeVersion(), ApiVersion: st.Version.GetRuntimeApiVersion(),
		LastOkTime: onClock(st.LastOK), ContainerEvents: st.ContainerEvents,
		LastRelistTime: onClock(st.LastRelist), SourcesReadyTime: stamp(st.SourcesReady),
		SupplementalGroupsPolicy: st.Status.GetFeatures().GetSupplementalGroupsPolicy(),
	}
	if !st.PressureSaid.IsZero() {
		resp.ToldPressure = &podsyncv1.ToldPressure{Time: onClock(st.PressureSaid)}
		for _, c := range st.Pressure {
			resp.ToldPressure.Conditions = append(resp.ToldPressure.Conditions, string(c))
		}
	}
	resp.KubeletDevices = &podsyncv1.KubeletDevices{Checkpoint: st.Devices.Checkpoint}
	for _, name := range st.Devices.Resources {
		resp.KubeletDevices.Resources = append(resp.KubeletDevices.Resources, string(name))
	}
	resp.RuntimeReady, resp.RuntimeMessage = condition(st.Status, runtimeapi.RuntimeReady)
	resp.NetworkReady, resp.NetworkMessage = condition(st.Status, runtimeapi.NetworkReady)
	if st.Err != nil {
		resp.RuntimeReady, resp.RuntimeMessage = false, fmt.Sprintf("the runtime does not answer: %v", st.Err)
	}
	for _, h := range st.Status.GetRuntimeHandlers() {
		resp.Handlers = append(resp.Handlers, &podsyncv1.RuntimeHandler{
			Name: h.GetName(), RecursiveReadOnlyMounts: h.GetFeatures().GetRecursiveReadOnlyMounts(), UserNamespaces: h.GetFeatures().GetUserNamespaces(),
		})
	}
	sort.Slice(resp.Handlers, func(i, j int) bool { return resp.Handlers[i].Name < resp.Handlers[j].Name })
	return resp, nil
}

// onClock is what the wall clock says now of a moment of this run: it may have been
// set since, and who is told compares it with the clock.
func onClock(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(time.Now().Add(-time.Since(t)))
}

// condition reads one of the runtime's conditions; one that it does not report
// is not ready. That a text begins with "reason:" tells nodestatus that the runtime
// itself has said so, and that it is no call that failed.
func condition(st *runtimeapi.StatusResponse, kind string) (bool, string) {
	for _, c := range st.GetStatus().GetConditions() {
		if c.GetType() != kind {
			continue
		}
		if c.GetStatus() {
			return true, ""
		}
		return false, fmt.Sprintf("reason:%s message:%s", c.GetReason(), c.GetMessage())
	}
	return false, fmt.Sprintf("reason:NotReported message:the runtime's status has no condition %s", kind)
}

// mostImageNames bounds the tags, and the digests, of one image that are shown: whoever
// pushes an image may give it as many as they like.
const mostImageNames = 100

func first(names []string) []string { return names[:min(len(names), mostImageNames)] }

// ListImages implements PodSyncService.
func (s *Server) ListImages(ctx context.Context, _ *podsyncv1.ListImagesRequest) (*podsyncv1.ListImagesResponse, error) {
	list, err := s.deps.Runtime.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the runtime's images: %w", err)
	}
	resp := &podsyncv1.ListImagesResponse{}
	for _, img := range list.GetImages() {
		resp.Images = append(resp.Images, &podsyncv1.Image{
			Id: img.GetId(), RepoDigests: first(img.GetRepoDigests()), RepoTags: first(img.GetRepoTags()), SizeBytes: img.GetSize(), Pinned: img.GetPinned(),
		})
	}
	sort.Slice(resp.Images, func(i, j int) bool {
		a, b := resp.Images[i], resp.Images[j]
		if a.SizeBytes != b.SizeBytes {
			return a.SizeBytes > b.SizeBytes
		}
		return a.Id > b.Id
	})
	return resp, nil
}

// ListFilesystemUsage implements PodSyncService.
func (s *Server) ListFilesystemUsage(ctx context.Context, _ *podsyncv1.ListFilesystemUsageRequest) (*podsyncv1.ListFilesystemUsageResponse, error) {
	stats, err := s.deps.Runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the containers' writable layers: %w", err)
	}
	info, err := s.deps.Runtime.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask for the image filesystem: %w", err)
	}
	resp := &podsyncv1.ListFilesystemUsageResponse{
		ImageFilesystems: usages(info.GetImageFilesystems()), ContainerFilesystems: usages(info.GetContainerFilesystems()),
		SandboxImage: s.sandboxImage(ctx),
	}
	for _, c := range stats.GetStats() {
		if layer := c.GetWritableLayer(); layer != nil {
			resp.WritableLayers = append(resp.WritableLayers, &podsyncv1.WritableLayer{ContainerId: c.GetAttributes().GetId(), Usage: usage(layer)})
		}
	}
	return resp, nil
}

// sandboxImage names the image of sandboxes; empty when it cannot be found out,
// for it is a label only. Runtimes that do not name it in their configuration
// pin it, and it is the only image that they pin by themselves.
func (s *Server) sandboxImage(ctx context.Context) string {
	if s.deps.SandboxImage != nil {
		if name, err := s.deps.SandboxImage(ctx); err == nil && name != "" {
			return name
		}
	}
	list, err := s.deps.Runtime.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return ""
	}
	for _, img := range list.GetImages() {
		if img.GetPinned() && len(img.GetRepoTags()) > 0 {
			return img.GetRepoTags()[0]
		}
	}
	return ""
}

func usages(list []*runtimeapi.FilesystemUsage) []*podsyncv1.FilesystemUsage {
	out := make([]*podsyncv1.FilesystemUsage, 0, len(list))
	for _, u := range list {
		out = append(out, usage(u))
	}
	return out
}

func usage(u *runtimeapi.FilesystemUsage) *podsyncv1.FilesystemUsage {
	m := &podsyncv1.FilesystemUsage{Mountpoint: u.GetFsId().GetMountpoint(), UsedBytes: u.GetUsedBytes().GetValue(), InodesUsed: u.GetInodesUsed().GetValue()}
	if u.GetTimestamp() > 0 {
		m.Time = stamp(time.Unix(0, u.GetTimestamp()))
	}
	return m
}
