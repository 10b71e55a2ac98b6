package fakecri

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// FailTeardowns lets the next n CNI DELs fail, whosesoever.
func (r *Runtime) FailTeardowns(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.badTeardowns = n
}

// setUpNetworkLocked gives the sandbox an address.
func (s *sandbox) setUpNetworkLocked() {
	r := s.r
	r.nextIP++
	s.ip = fmt.Sprintf("10.88.%d.%d", r.nextIP/250%250, r.nextIP%250+2)
	s.network = true
	s.networkTo("", Up, "RunPodSandbox")
}

// tearDownNetworkLocked is CNI DEL, as often as it is asked for while the network is up: it
// takes its time, and when it fails the network stays up. The lock is let go of
// while time passes.
func (s *sandbox) tearDownNetworkLocked(ctx context.Context, cause string) error {
	if !s.network {
		return nil
	}
	r := s.r
	if d := r.cfg.Latency["CNI DEL"]; d > 0 {
		r.mu.Unlock()
		err := r.wait(ctx, d)
		r.mu.Lock()
		if err != nil || !s.network { // another call was faster
			return err
		}
	}
	if err := s.teardownFailsLocked(); err != nil {
		return status.Errorf(codes.Unknown, "failed to destroy network for sandbox %q: %v", s.id, err)
	}
	s.ip = ""
	s.networkIsDownLocked(cause)
	return nil
}

// teardownFailsLocked says why this CNI DEL fails; nil when it does not.
func (s *sandbox) teardownFailsLocked() error {
	r := s.r
	n := s.teardowns
	s.teardowns++
	switch {
	case !r.networkReady:
		return fmt.Errorf("cni plugin not initialized")
	case r.badTeardowns > 0:
		r.badTeardowns--
		return fmt.Errorf("plugin type=%q failed (delete): fault injected", "bridge")
	case r.cfg.Teardown != nil:
		return r.cfg.Teardown(s.info(), n)
	}
	return nil
}

// networkIsDownLocked notes that nothing of the network is left.
func (s *sandbox) networkIsDownLocked(cause string) {
	if s.network {
		s.network = false
		s.networkTo(Up, Down, cause)
	}
}

func (s *sandbox) networkTo(from, to, cause string) {
	m := s.cfg.GetMetadata()
	s.r.transitionLocked(Transition{
		Kind: KindNetwork, ID: s.id, SandboxID: s.id, PodUID: m.GetUid(), Namespace: m.GetNamespace(), Pod: m.GetName(),
		Attempt: m.GetAttempt(), From: from, To: to, Cause: cause,
	})
}
