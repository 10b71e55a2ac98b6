package podsync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/admission/gate"
	"github.com/polylet/polylet/services/podsync/internal/cluster/objects"
	"github.com/polylet/polylet/services/podsync/internal/housekeeping/imagegc"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/worker"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/resources"
	"github.com/polylet/polylet/services/podsync/internal/runtime/execreaper"
	"github.com/polylet/polylet/services/podsync/internal/runtime/inventory"
	"github.com/polylet/polylet/services/podsync/internal/runtime/observe"
	"github.com/polylet/polylet/services/podsync/internal/server"
)

// runtimeSink hands on what the observer sees.
type runtimeSink struct {
	*pods
	wiring *wiring
}

// RuntimeChanged implements observe.Sink.
func (r runtimeSink) RuntimeChanged(now observe.Runtime) {
	r.wiring.podCIDR.Check()
	if r.wiring.nodeCgroups != nil {
		r.wiring.nodeCgroups.Check()
	}
	r.pods.RuntimeChanged(now)
}

// imageNames are those that pods and the records of pulls have.
func (w *wiring) imageNames() (names []string, err error) {
	for _, pod := range w.shown.List() {
		names = append(names, podutil.Images(pod.Pod)...)
	}
	if w.pulls != nil {
		refs, err := w.pulls.Refs()
		return append(names, refs...), err
	}
	return names, nil
}

// servedRuntime is the runtime for the server, whose images are listed however many
// names they have.
type servedRuntime struct {
	execreaper.Runtime
	images *inventory.Images
}

// ListImages implements server.Runtime.
func (r servedRuntime) ListImages(ctx context.Context, _ *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	images, err := r.images.List(ctx)
	if partial := (*inventory.Partial)(nil); errors.As(err, &partial) {
		err = nil // health names it
	}
	return &runtimeapi.ListImagesResponse{Images: images}, err
}

// spec is a pod that is known; nil when it is not.
func (w *wiring) spec(uid types.UID) *v1.Pod {
	if pod, ok := w.shown.Get(uid); ok {
		return pod.Pod
	}
	return nil
}

func (w *wiring) runtimeReady() bool { return w.observer.Runtime().Ready }

// objectChanged passes on that an API object changed. It returns at once.
func (w *wiring) objectChanged(key objects.Key, holders []types.UID) {
	if key.Kind == objects.Node {
		w.node.ObjectChanged()
		return
	}
	if key.Kind == objects.PodCertificateRequest && w.certificates != nil {
		w.certificates.Changed()
	}
	if key.Kind == objects.CSIDriver {
		w.csi.DriverChanged(key.Name)
	}
	w.volumes.ObjectChanged(holders)
	w.volumes.MayWork(holders)
	w.pods.ObjectsChanged(holders)
}

// restored passes on that etcd was restored from an older state. It returns at once.
func (w *wiring) restored() {
	w.node.Restored()
	w.objects.Restored()
}

// admits answers the workers' questions about admission.
type admits struct{ *gate.Gate }

func (a admits) admit(q worker.Question) worker.Answer {
	decided := a.Admit(gate.Question(q))
	answer := worker.Answer{Admission: decided.Admission}
	for _, v := range decided.Preempt {
		answer.Preempt = append(answer.Preempt, worker.Preemption{UID: v.Pod.UID, Signal: string(v.Signal), Stop: v.Stop})
	}
	return answer
}

func (a admits) resize(q worker.ResizeQuestion) *podstate.ResizePending {
	return a.Resize(gate.Resize(q))
}

// nodeFacts is what the planner needs to know of the node.
func (w *wiring) nodeFacts() worker.Node {
	r, pods := w.observer.Runtime(), w.cfg.Pods
	return worker.Node{
		IPs: w.node.HostIPs(), IPsSought: w.node.HostIPsSought(), IPsKnown: w.node.HostIPsKnown(),
		RuntimeName: r.Name, NetworkReady: r.NetworkReady, NetworkMessage: r.NetworkMessage, RecursiveReadOnly: r.RecursiveReadOnly(),
		MaxContainerRestartPeriod: pods.MaxRestartPeriod, FirstContainerRestartPeriod: pods.FirstRestartPeriod,
		NoRestartRules: !pods.RestartRules, NoRestartAll: !pods.RestartAll, NoReadyToStart: !pods.ReadyToStart,
		Quotas:           resources.Quotas{On: w.cfg.Cgroups.CPUCFSQuota, PeriodMicros: w.cfg.Cgroups.CPUCFSQuotaPeriod.Microseconds()},
		NoPodLevelResize: !w.cfg.Resize.PodLevel,
		DeadContainers:   pods.DeadContainers, DeadContainerTTL: pods.DeadContainerTTL,
	}
}

// handlers are the runtime's, with what they can do.
func (w *wiring) handlers() map[string]*runtimeapi.RuntimeHandlerFeatures {
	r := w.observer.Runtime()
	return r.Handlers()
}

func (w *wiring) runtimeState() server.RuntimeState {
	r, short := w.observer.Runtime(), w.gate.Pressure()
	return server.RuntimeState{
		Version: r.Version, Status: r.Status, Err: r.Err, LastOK: r.LastOK, ContainerEvents: r.Events,
		LastRelist: r.LastRelist, SourcesReady: w.pods.SourcesReady(),
		Pressure: short.Conditions, PressureSaid: short.Said, Devices: w.devices.Last(),
	}
}

// lookForDevices finds out which extended resources were device plugins' while a kubelet
// had the node: nobody serves them now, and admission and the Node have to know.
func (w *wiring) lookForDevices(log logr.Logger) {
	known, err := w.devices.Read()
	if err != nil {
		log.Error(err, "It is not known which extended resources are device plugins'")
	}
	if len(known.Resources) > 0 {
		log.Info("Extended resources of a kubelet's device plugins are not offered, for this node has no device plugins yet; if they are only counted, remove device-plugins/kubelet_internal_checkpoint and restart podsync", "resources", known.Resources)
	}
}

// stops says of the Registry's stops in the server's words why one is none.
type stops struct{ *pods }

// setPressure takes in what the node is short of.
func (w *wiring) setPressure(conditions []v1.NodeConditionType, counts time.Duration) {
	w.gate.SetPressure(conditions, counts)
	w.pods.PressureChanged()
}

// setShutdown takes in whether the machine goes down.
func (w *wiring) setShutdown(active bool) {
	w.gate.SetShutdown(active)
	if !active {
		w.pods.CalledOff()
	}
}

// Stop implements server.Stopper.
func (s stops) Stop(ctx context.Context, uid types.UID, stop podstate.Stop, annotations map[string]string) (already bool, err error) {
	already, err = s.pods.Stop(ctx, uid, stop, annotations)
	if err = unknown(err); errors.Is(err, rpcerr.ErrUnavailable) {
		return already, err
	}
	if gone, never := errors.Is(err, worker.ErrNoPod) || errors.Is(err, worker.ErrEnded), errors.Is(err, worker.ErrCritical); gone || never {
		err = &server.StopError{Err: err, Gone: gone, Never: never}
	}
	return already, err
}

// unknown has an error say that trying again may help where it is that not all pods are
// known yet.
func unknown(err error) error {
	if errors.Is(err, worker.ErrNotAllKnown) || errors.Is(err, imagegc.ErrNotAllKnown) {
		return fmt.Errorf("%w: %w", rpcerr.ErrUnavailable, err)
	}
	return err
}

// reclaims frees what the node can do without.
type reclaims struct {
	*pods
	images *imagegc.Collector
}

// Containers implements server.Reclaimer.
func (r reclaims) Containers(ctx context.Context) (server.Reclaimed, error) {
	freed, err := r.Reclaim(ctx)
	return server.Reclaimed{Count: freed.Removed, Failed: freed.Failed}, unknown(err)
}

// Images implements server.Reclaimer.
func (r reclaims) Images(ctx context.Context) (server.Reclaimed, error) {
	freed, err := r.images.Reclaim(ctx)
	return server.Reclaimed{Count: freed.Images, Bytes: freed.Bytes, Failed: freed.Failed}, unknown(err)
}
