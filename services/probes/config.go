package probes

import (
	"errors"
	"fmt"
)

// Config is what an operator can choose. The zero value is usable.
type Config struct {
	// UserAgent of HTTP and gRPC probes; "kube-probe/<major>.<minor>" of the
	// Kubernetes version that this build matches when empty.
	UserAgent string
}

func (d Deps) validate() error {
	var errs []error
	if d.Podsync == nil {
		errs = append(errs, errors.New("probes: Deps.Podsync is nil: a connection to podsync's socket is needed"))
	}
	if d.Metrics == nil || d.ProbeMetrics == nil {
		errs = append(errs, errors.New("probes: Deps.Metrics or Deps.ProbeMetrics is nil: both registries are needed"))
	}
	if d.Epoch == 0 {
		errs = append(errs, fmt.Errorf("probes: Deps.Epoch is 0: a random number per start is needed"))
	}
	return errors.Join(errs...)
}
