package podsync

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/polylet/polylet/internal/backoff"
	"github.com/polylet/polylet/internal/buildinfo"
	"github.com/polylet/polylet/services/podsync/internal/admission"
	"github.com/polylet/polylet/services/podsync/internal/lifecycle/worker"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
)

// admit asks the rules of admission. Static pods do not wait for a Node object:
// the apiserver that has it may be one of them.
func (s *Service) admit(q worker.Question) worker.Answer {
	node := s.node.Load()
	in := admission.Input{
		Pod: q.Pod, Static: q.Static, Standalone: s.cfg.Standalone || q.Static && node == nil, Node: node,
		Waited: q.Waited, Deadline: s.cfg.NodeDeadline, Active: q.Active, Leaving: q.Leaving, Gone: q.Gone, Host: s.hostFacts(q.Pod, node),
	}
	read := s.nodeRead.Load()
	s.runtimeAway.discount(in.Leaving, s.observer.Runtime().Err != nil, time.Now())
	in.NodeOutdated = node != nil && s.deps.Client != nil && (read == nil || read.Before(q.Asked))
	if in.Standalone {
		in.Allocatable = s.allocatable()
	}
	decided := admission.Check(in)
	if decided.Decision == podstate.AdmissionPending && in.NodeOutdated {
		s.nodeStale.Store(true)
		kick(s.readKick)
	}
	answer := worker.Answer{Admission: decided.Admission}
	for _, v := range decided.Preempt {
		answer.Preempt = append(answer.Preempt, worker.Preemption{UID: v.Pod.UID, Signal: string(v.Signal), Stop: v.Stop})
	}
	return answer
}

// outage is when the runtime was last seen not to answer. Safe for concurrent use.
type outage struct{ last atomic.Pointer[time.Time] }

// discount takes the time until the end of the last outage from that in which pods
// have been stopped: nobody could be told to end. Who waits for them asks every
// second, so an outage is seen.
func (o *outage) discount(leaving map[types.UID]time.Duration, away bool, now time.Time) {
	if away {
		o.last.Store(&now)
	}
	if last := o.last.Load(); last != nil {
		for uid, long := range leaving {
			leaving[uid] = min(long, now.Sub(*last))
		}
	}
}

// unmet names what an update of a pod needs and this node does not have.
func (s *Service) unmet(old, now *v1.Pod) ([]string, error) {
	return admission.UnmetByUpdate(s.cfg.DeclaredFeatures, buildinfo.KubernetesVersion, old, now)
}

// hostFacts is what of the machine and the runtime matters to admission.
func (s *Service) hostFacts(pod *v1.Pod, node *v1.Node) admission.Host {
	h := admission.Host{
		AllowedUnsafeSysctls: s.cfg.AllowedUnsafeSysctls, NoPodLevelResources: s.cfg.NoPodLevelResources,
		DeclaredFeatures: s.cfg.DeclaredFeatures, Release: buildinfo.KubernetesVersion, ShuttingDown: shuttingDown(node),
	}
	if status := s.observer.Runtime().Status; status != nil {
		h.NoSupplementalGroupsPolicy = !status.GetFeatures().GetSupplementalGroupsPolicy()
	}
	if admission.NeedsAppArmor(pod) { // a look into the kernel's memory: it does not block
		h.NoAppArmor, h.AppArmorProfiles = appArmor(appArmorEnabled, appArmorLoaded)
	}
	return h
}

// shuttingDown says whether the Node object says so: who follows the machine's
// shutdown writes it into the Ready condition.
func shuttingDown(node *v1.Node) bool {
	if node == nil {
		return false
	}
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady && c.Status == v1.ConditionFalse && strings.Contains(c.Message, "node is shutting down") {
			return true
		}
	}
	return false
}

// Where the kernel says whether it enforces AppArmor, and which profiles it has.
const (
	appArmorEnabled = "/sys/module/apparmor/parameters/enabled"
	appArmorLoaded  = "/sys/kernel/security/apparmor/profiles"
)

// appArmor reads both; profiles is nil when they cannot be read.
func appArmor(enabled, loaded string) (off bool, profiles map[string]bool) {
	answer, err := os.ReadFile(enabled)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !strings.HasPrefix(string(answer), "Y") {
		return true, nil
	}
	text, err := os.ReadFile(loaded)
	if err != nil {
		return false, nil
	}
	profiles = map[string]bool{}
	for line := range strings.Lines(string(text)) { // name (mode)
		if i := strings.LastIndex(line, " ("); i > 0 {
			profiles[line[:i]] = true
		}
	}
	return false, profiles
}

// readNode reads the Node object from the apiserver itself when admission wants
// it newer than the watch may have it. Who asks in the meantime waits with it:
// each try wakes every pod that asks, and they would ask again at once.
func (s *Service) readNode(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	retry := backoff.New(backoff.Config{Initial: 100 * time.Millisecond, Max: 10 * time.Second, Jitter: 0.2})
	for ctx.Err() == nil {
		if !s.nodeStale.Swap(false) || s.deps.Client == nil {
			select {
			case <-ctx.Done():
			case <-s.readKick:
			}
			continue
		}
		if err := s.readNodeOnce(ctx); err != nil && ctx.Err() == nil {
			log.Info("Could not read this node's object anew; a pod that does not match it waits", "error", err.Error())
			s.nodeStale.Store(true)
			_ = retry.Wait(ctx)
			continue
		}
		retry.Reset()
	}
	return nil
}

func (s *Service) readNodeOnce(ctx context.Context) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	node, err := s.deps.Client.CoreV1().Nodes().Get(ctx, s.cfg.NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if s.storeNode(node) {
		kick(s.nodeKick)
	}
	s.nodeRead.Store(&began)
	s.registry.Recheck()
	return nil
}

// storeNode keeps the newest of what the watch and a read of our own gave, and
// says whether this one is news.
func (s *Service) storeNode(node *v1.Node) (news bool) {
	for {
		old := s.node.Load()
		if old == node {
			return false
		}
		if old != nil && old.UID == node.UID {
			if order, err := resourceversion.CompareResourceVersion(node.ResourceVersion, old.ResourceVersion); err == nil && (order < 0 || order == 0 && node.ResourceVersion != "") {
				return false
			}
		}
		if s.node.CompareAndSwap(old, node) {
			kick(s.addressKick)
			if old == nil || !equality.Semantic.DeepEqual(old.Status.Allocatable, node.Status.Allocatable) {
				s.volumes.AllocatableChanged()
			}
			return true
		}
	}
}
