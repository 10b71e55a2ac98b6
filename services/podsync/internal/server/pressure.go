package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	"github.com/polylet/polylet/internal/rpcerr"
)

// Reclaimer frees what the node can do without. What it returns counts with an error, too.
type Reclaimer interface {
	// Containers removes containers and sandboxes that have ended.
	Containers(ctx context.Context) (Reclaimed, error)
	// Images removes images that nothing uses.
	Images(ctx context.Context) (Reclaimed, error)
}

// Reclaimed is what was removed.
type Reclaimed struct {
	Count int
	// Bytes are known of images.
	Bytes uint64
	// Failed says what could not be removed and why.
	Failed []string
}

// What counts of one SetPressure, and for how long.
const (
	usualPressure   = time.Minute
	longestPressure = time.Hour
)

// SetPressure implements PodSyncService.
func (s *Server) SetPressure(_ context.Context, req *podsyncv1.SetPressureRequest) (*podsyncv1.SetPressureResponse, error) {
	if s.deps.Pressure == nil {
		return nil, fmt.Errorf("%w: this podsync goes by the Node alone", rpcerr.ErrUnimplemented)
	}
	known := []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure}
	var holding []v1.NodeConditionType
	for _, name := range req.GetConditions() {
		c := v1.NodeConditionType(name)
		if !slices.Contains(known, c) {
			return nil, fmt.Errorf("%w: set the node's pressure: the condition %.40q is none of %v", rpcerr.ErrInvalid, name, known)
		}
		if !slices.Contains(holding, c) {
			holding = append(holding, c)
		}
	}
	ttl := usualPressure
	if req.GetTtl() != nil {
		ttl = req.GetTtl().AsDuration()
	}
	if req.GetTtl() != nil && req.GetTtl().CheckValid() != nil || ttl <= 0 || ttl > longestPressure {
		return nil, fmt.Errorf("%w: set the node's pressure: the ttl is %s: it must be more than 0 and no more than %s", rpcerr.ErrInvalid, ttl, longestPressure)
	}
	s.deps.Pressure(holding, ttl)
	return &podsyncv1.SetPressureResponse{}, nil
}

// mostFailed is how many failures an answer names, and mostFailure how much of each.
const (
	mostFailed  = 100
	mostFailure = 1024
)

// Reclaim implements PodSyncService. One goes on at a time, and who asks meanwhile
// waits: what the first has freed is not looked for twice.
func (s *Server) Reclaim(ctx context.Context, req *podsyncv1.ReclaimRequest) (*podsyncv1.ReclaimResponse, error) {
	if s.deps.Reclaim == nil {
		return nil, fmt.Errorf("%w: this podsync reclaims by its own thresholds only", rpcerr.ErrUnimplemented)
	}
	if !req.GetContainers() && !req.GetImages() {
		return nil, fmt.Errorf("%w: say what to reclaim: containers, images or both", rpcerr.ErrInvalid)
	}
	if s.deps.State().SourcesReady.IsZero() {
		return nil, fmt.Errorf("%w: reclaim: not all pods of the node are known yet, nor what they need; polylet status shows which source is away", rpcerr.ErrUnavailable)
	}
	done, err := s.reclaims.TakeWithin(ctx, "reclaim")
	if err != nil {
		return nil, fmt.Errorf("%w: reclaim: another one is under way: %w", rpcerr.ErrTimeout, err)
	}
	defer done()
	resp := &podsyncv1.ReclaimResponse{}
	if req.GetContainers() {
		freed, err := s.deps.Reclaim.Containers(ctx)
		if errors.Is(err, rpcerr.ErrUnavailable) {
			return nil, fmt.Errorf("reclaim: %w", err)
		}
		resp.Containers = uint32(max(0, min(freed.Count, 1<<31)))
		addFailed(resp, freed.Failed, err)
	}
	if req.GetImages() {
		freed, err := s.deps.Reclaim.Images(ctx)
		if errors.Is(err, rpcerr.ErrUnavailable) && resp.GetContainers() == 0 {
			return nil, fmt.Errorf("reclaim: %w", err)
		}
		resp.Images, resp.ImageBytes = uint32(max(0, min(freed.Count, 1<<31))), freed.Bytes
		addFailed(resp, freed.Failed, err)
	}
	return resp, nil
}

// addFailed names what could not be removed, with the error that ended it all.
func addFailed(resp *podsyncv1.ReclaimResponse, failed []string, err error) {
	if err != nil {
		failed = append(failed, err.Error())
	}
	for _, text := range failed {
		if len(resp.Failed) == mostFailed {
			return
		}
		resp.Failed = append(resp.Failed, fmt.Sprintf("%.*s", mostFailure, text))
	}
}
