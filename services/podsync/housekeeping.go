package podsync

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/services/podsync/internal/housekeeping/imagegc"
	"github.com/polylet/polylet/services/podsync/internal/housekeeping/logrotate"
	"github.com/polylet/polylet/services/podsync/internal/report/podcache"
	"github.com/polylet/polylet/services/podsync/internal/runtime/cri"
	"github.com/polylet/polylet/services/podsync/internal/runtime/inventory"
)

// housekeeping makes what keeps logs and images within their bounds.
func (s *Service) housekeeping() {
	cfg := s.cfg
	s.rotator = logrotate.New(logrotate.Config{
		PodLogsDir: cfg.PodLogsDir, LinksDir: cfg.linksDir(), MaxSize: cfg.LogMaxSizeBytes, MaxFiles: cfg.LogMaxFiles,
		Workers: cfg.LogWorkers, Interval: cfg.LogInterval,
	}, logrotate.Deps{Runtime: s.runtime, Containers: s.table})
	var records imagegc.Records
	if s.pulls != nil {
		records = s.pulls
	}
	s.images = &imageList{client: s.runtime, names: s.imageNames, health: s.deps.Health}
	s.collector = imagegc.New(imagegc.Config{
		HighPercent: cfg.ImageGCHighPercent, LowPercent: cfg.ImageGCLowPercent, MinAge: cfg.ImageMinAge, MaxAge: cfg.ImageMaxAge,
	}, imagegc.Deps{
		Runtime: listing{s.runtime, s.cfg, s.pods, s.images}, Pods: s.pods, Containers: s.table, Events: s.events, Metrics: s.deps.Metrics, Records: records,
		Ready: func() bool { return !s.registry.SourcesReady().IsZero() },
	})
}

// listing is the runtime whose containers are found however many they are.
type listing struct {
	*cri.Client
	cfg    Config
	pods   *podcache.Pods
	images *imageList
}

// ListImages implements imagegc.Runtime.
func (l listing) ListImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	return l.images.list(ctx)
}

// ListContainers implements imagegc.Runtime.
func (l listing) ListContainers(ctx context.Context, uid string) ([]*runtimeapi.Container, error) {
	if uid != "" {
		return l.Client.ListContainers(ctx, uid)
	}
	list, err := inventory.Containers(ctx, l.Client, func() ([]types.UID, error) {
		return inventory.OnDisk(filepath.Join(l.cfg.RootDir, "pods"), l.cfg.PodLogsDir)
	})
	return append(list.Containers, l.standIns(list.TooLarge)...), err
}

// standIns stand for the containers of pods that are too large to be listed, by what
// their specs say: the images are in use.
func (l listing) standIns(pods map[types.UID]error) (out []*runtimeapi.Container) {
	for uid := range pods {
		pod, ok := l.pods.Get(uid)
		if !ok {
			continue
		}
		for _, name := range imagesOf(pod.Pod) {
			out = append(out, &runtimeapi.Container{Image: &runtimeapi.ImageSpec{Image: name}})
		}
	}
	return out
}

// imagesOf names the images that a pod's spec asks for.
func imagesOf(pod *v1.Pod) (names []string) {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			names = append(names, list[i].Image)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Image)
	}
	for i := range pod.Spec.Volumes {
		if v := pod.Spec.Volumes[i].Image; v != nil {
			names = append(names, v.Reference)
		}
	}
	return names
}

// linksDir holds links to the containers' logs.
func (c *Config) linksDir() string { return filepath.Join(filepath.Dir(c.PodLogsDir), "containers") }

// logsOnDisk lists the pods that have a directory of logs,
// <namespace>_<name>_<uid>.
func (s *Service) logsOnDisk() ([]types.UID, error) {
	entries, err := os.ReadDir(s.cfg.PodLogsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var uids []types.UID
	for _, e := range entries {
		if parts := strings.Split(e.Name(), "_"); e.IsDir() && len(parts) == 3 && parts[2] != "" {
			uids = append(uids, types.UID(parts[2]))
		}
	}
	return uids, err
}
