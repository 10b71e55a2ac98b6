package server

import (
	"context"
	"fmt"
	"strings"

	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/stats/internal/collector"
)

// longestPath bounds what is told of a file's name, which a container chooses.
const longestPath = 256

// ListUnlinkedFiles implements StatsService.
func (s *Server) ListUnlinkedFiles(ctx context.Context, _ *statsv1.ListUnlinkedFilesRequest) (*statsv1.ListUnlinkedFilesResponse, error) {
	found, all, err := s.Collector.Unlinked(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: find the files that are open and have no name: %w", rpcerr.ErrUnavailable, err)
	}
	out := &statsv1.ListUnlinkedFilesResponse{Incomplete: !all}
	for _, u := range found {
		files := &statsv1.UnlinkedFiles{
			PodUid: u.PodUID, Container: u.Container, Largest: strings.ToValidUTF8(u.Largest[:min(len(u.Largest), longestPath)], ""),
			RootBytes: u.Root.Bytes, RootFiles: u.Root.Count, LayerBytes: u.Layer.Bytes, LayerFiles: u.Layer.Count, Incomplete: u.Incomplete,
		}
		files.Volumes, files.CountedVolumes = inVolumes(u.Volumes), inVolumes(u.Counted)
		out.Containers = append(out.Containers, files)
	}
	return out, nil
}

func inVolumes(all map[string]collector.Files) (out []*statsv1.UnlinkedInVolume) {
	for name, v := range all {
		out = append(out, &statsv1.UnlinkedInVolume{Volume: strings.ToValidUTF8(name, ""), Bytes: v.Bytes, Files: v.Count})
	}
	return out
}
