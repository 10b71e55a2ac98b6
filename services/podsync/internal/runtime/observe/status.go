package observe

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/backoff"
)

// badStatusPeriod is how often the conditions are asked for while one is not good.
const badStatusPeriod = 500 * time.Millisecond

// connect waits until the runtime answers; false when ctx ended first.
func (o *Observer) connect(ctx context.Context) bool {
	retry := backoff.New(backoff.Config{Initial: 50 * time.Millisecond, Max: time.Second})
	for {
		if o.askStatus(ctx) == nil {
			return true
		}
		if retry.Wait(ctx) != nil {
			return false
		}
	}
}

// followStatus keeps the runtime's conditions current.
func (o *Observer) followStatus(ctx context.Context) {
	for {
		r := o.Runtime()
		period := o.cfg.StatusPeriod
		if !r.Ready || !r.NetworkReady {
			period = badStatusPeriod
		}
		t := time.NewTimer(period)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-o.check:
		case <-t.C:
		}
		t.Stop()
		_ = o.askStatus(ctx)
	}
}

// askStatus asks the runtime how it is and tells the sink when that changed.
// Its error is also reported as the health of "runtime".
func (o *Observer) askStatus(ctx context.Context) error {
	next := o.Runtime()
	err := o.fill(ctx, &next)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		next.Ready, next.Message, next.Err = false, err.Error(), err
		o.health.Set("runtime", false, fmt.Sprintf(
			"the container runtime at %s does not answer: %v; start it, or set containerRuntimeEndpoint to its socket", o.cfg.Endpoint, err))
	} else {
		o.health.Set("runtime", next.Ready, fmt.Sprintf(
			"the container runtime at %s says that it is not ready: %s; see its log", o.cfg.Endpoint, next.Message))
		o.health.Set("network", next.NetworkReady, fmt.Sprintf(
			"the container runtime's network is not ready: %s; install a CNI plugin and its configuration", next.NetworkMessage))
	}
	o.mu.Lock()
	old := o.runtime
	next.Events, next.Began, next.LastRelist = old.Events, old.Began, old.LastRelist
	o.runtime = next
	o.mu.Unlock()
	if old.Name != next.Name || old.Ready != next.Ready || old.NetworkReady != next.NetworkReady || old.NetworkMessage != next.NetworkMessage {
		klog.FromContext(ctx).Info("Runtime state", "name", next.Name, "version", next.Version.GetRuntimeVersion(),
			"ready", next.Ready, "message", next.Message, "networkReady", next.NetworkReady, "networkMessage", next.NetworkMessage)
		o.sink.RuntimeChanged(next)
	}
	return err
}

func (o *Observer) fill(ctx context.Context, r *Runtime) error {
	if r.Name == "" || !r.Ready {
		v, err := o.client.Version(ctx)
		if err != nil {
			return err
		}
		r.Name, r.Version = v.GetRuntimeName(), v
	}
	st, err := o.client.Status(ctx)
	if err != nil {
		return err
	}
	r.LastOK = time.Now()
	r.Status, r.Err = st, nil
	r.Ready, r.Message, r.NetworkReady, r.NetworkMessage = false, "", false, "" // of a condition that is not there
	for _, c := range st.GetStatus().GetConditions() {
		said := fmt.Sprintf("reason:%s message:%s", c.GetReason(), c.GetMessage())
		switch c.GetType() {
		case runtimeapi.RuntimeReady:
			r.Ready, r.Message = c.GetStatus(), said
		case runtimeapi.NetworkReady:
			r.NetworkReady, r.NetworkMessage = c.GetStatus(), said
		}
	}
	return nil
}
