package server

import (
	"context"
	"fmt"
	"maps"
	"sort"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
)

// ListDesiredPods implements PodSyncService.
func (s *Server) ListDesiredPods(_ context.Context, req *podsyncv1.ListDesiredPodsRequest) (*podsyncv1.ListDesiredPodsResponse, error) {
	resp := &podsyncv1.ListDesiredPodsResponse{Partial: !s.podsKnown()}
	resp.Epoch, resp.Revision = s.deps.Pods.Version()
	if s.deps.Stops != nil {
		resp.EndingsKnown, resp.Endings = true, s.endings()
	}
	if req.GetKnownEpoch() == resp.Epoch && req.GetKnownRevision() == resp.Revision {
		resp.Unchanged = true
		return resp, nil
	}
	for _, pod := range s.deps.Pods.List() {
		var desired *v1.Pod
		if pod.Static {
			desired = pod.WithStatus()
		} else {
			desired = withSource(pod)
		}
		data, err := marshal(desired)
		if err != nil {
			return nil, err
		}
		resp.Pods = append(resp.Pods, data)
	}
	return resp, nil
}

// withSource returns a copy of a pod of the apiserver that says where it came
// from and when it was first seen, as readers of a kubelet's pods expect.
func withSource(pod podcache.Pod) *v1.Pod {
	out := *pod.Pod
	out.Annotations = make(map[string]string, len(pod.Pod.Annotations)+2)
	maps.Copy(out.Annotations, pod.Pod.Annotations)
	out.Annotations[podutil.AnnotationSource] = podutil.SourceAPI
	out.Annotations[podutil.AnnotationSeen] = pod.Seen.UTC().Format(time.RFC3339Nano)
	return &out
}

// ListRuntimePods implements PodSyncService.
func (s *Server) ListRuntimePods(context.Context, *podsyncv1.ListRuntimePodsRequest) (*podsyncv1.ListRuntimePodsResponse, error) {
	resp := &podsyncv1.ListRuntimePodsResponse{}
	for _, running := range s.deps.Table.RunningPods() {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: running.Namespace, Name: running.Name, UID: running.UID}}
		for _, c := range running.Containers {
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: c.Name, Image: c.Image})
		}
		data, err := marshal(pod)
		if err != nil {
			return nil, err
		}
		resp.Pods = append(resp.Pods, data)
	}
	return resp, nil
}

func marshal(pod *v1.Pod) ([]byte, error) {
	data, err := pod.Marshal()
	if err != nil {
		return nil, fmt.Errorf("%w: encode pod %s/%s: %w", rpcerr.ErrInternal, pod.Namespace, pod.Name, err)
	}
	return data, nil
}

// podsServer serves Kubernetes' Pods API.
// Source: KEP-4188, k8s.io/kubelet/pkg/apis/pods/v1alpha1.
type podsServer struct {
	podsapi.UnimplementedPodsServer
	pods *podcache.Pods
}

// ListPods implements Pods.
func (s *podsServer) ListPods(context.Context, *podsapi.ListPodsRequest) (*podsapi.ListPodsResponse, error) {
	resp := &podsapi.ListPodsResponse{}
	for _, pod := range s.pods.List() {
		data, err := marshal(pod.WithStatus())
		if err != nil {
			return nil, err
		}
		resp.Pods = append(resp.Pods, data)
	}
	return resp, nil
}

// GetPod implements Pods.
func (s *podsServer) GetPod(_ context.Context, req *podsapi.GetPodRequest) (*podsapi.GetPodResponse, error) {
	if req.GetPodUID() == "" {
		return nil, fmt.Errorf("%w: podUID is empty", rpcerr.ErrInvalid)
	}
	pod, ok := s.pods.Get(types.UID(req.GetPodUID()))
	if !ok {
		return nil, fmt.Errorf("%w: pod with UID %q not found", rpcerr.ErrNotFound, req.GetPodUID())
	}
	data, err := marshal(pod.WithStatus())
	return &podsapi.GetPodResponse{Pod: data}, err
}

// WatchPods implements Pods. A client that reads slowly gets the newest state
// of each pod, and misses states in between.
func (s *podsServer) WatchPods(_ *podsapi.WatchPodsRequest, stream grpc.ServerStreamingServer[podsapi.WatchPodsEvent]) error {
	ctx := stream.Context()
	sub := s.pods.Subscribe(ctx)
	defer sub.Close()
	known := map[podcache.Key]bool{}
	for {
		frame, err := sub.Next(ctx)
		if err != nil {
			return ctx.Err()
		}
		for _, key := range sortedKeys(frame.Changed) {
			kind := podsapi.EventType_ADDED
			if known[key] {
				kind = podsapi.EventType_MODIFIED
			}
			known[key] = true
			if err := send(stream, kind, frame.Changed[key].WithStatus()); err != nil {
				return err
			}
		}
		for _, key := range frame.Removed {
			if !known[key] {
				continue
			}
			delete(known, key)
			gone := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: key.UID}}
			if err := send(stream, podsapi.EventType_DELETED, gone); err != nil {
				return err
			}
		}
		if frame.Snapshot {
			if err := stream.Send(&podsapi.WatchPodsEvent{Type: podsapi.EventType_INITIAL_SYNC_COMPLETE}); err != nil {
				return err
			}
		}
	}
}

func send(stream grpc.ServerStreamingServer[podsapi.WatchPodsEvent], kind podsapi.EventType, pod *v1.Pod) error {
	data, err := marshal(pod)
	if err != nil {
		return err
	}
	return stream.Send(&podsapi.WatchPodsEvent{Type: kind, Pod: data})
}

func sortedKeys(pods map[podcache.Key]podcache.Pod) []podcache.Key {
	keys := make([]podcache.Key, 0, len(pods))
	for key := range pods {
		keys = append(keys, key)
	}
	sort.Slice(keys, func(i, j int) bool { return keys[i].UID < keys[j].UID })
	return keys
}
