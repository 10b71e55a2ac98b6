package status

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
	"github.com/polylet/polylet/services/podsync/internal/report/status/equal"
)

// The lists of containers in a status.
const (
	regularList   = "containerStatuses"
	initList      = "initContainerStatuses"
	ephemeralList = "ephemeralContainerStatuses"
)

// Part is what can be left out of a status by itself, because the apiserver
// refuses it for good: one container, the addresses, conditions of others.
type Part struct {
	// Field of the status, as the API spells it, e.g. "containerStatuses".
	Field string
	// Container in it; empty for another field.
	Container string
}

// String names the part, e.g. "containerStatuses[web]".
func (p Part) String() string {
	if p.Container == "" {
		return p.Field
	}
	return p.Field + "[" + p.Container + "]"
}

// Refusal is a part that the apiserver does not take. The rest of the status is
// written without it, and it is tried again when it changes on either side.
type Refusal struct {
	Part
	// Why is the apiserver's answer.
	Why string
	// Since is when it was refused.
	Since time.Time
}

// refusal is a Refusal, with what the part was and what the apiserver had.
type refusal struct {
	Refusal
	wanted, had v1.PodStatus
}

// refusalsIn finds in the answer to a request the parts that are refused for
// good. None means that the answer names none, and may be another one later:
// a right that is missing, a webhook, a policy.
func refusalsIn(err error, r request) []refusal {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) || answer.Status().Details == nil {
		return nil
	}
	if code := answer.Status().Code; code != http.StatusUnprocessableEntity && code != http.StatusForbidden {
		return nil
	}
	var out []refusal
	found, wanted, had := map[Part]bool{}, partsOf(&r.desired), partsOf(&r.known)
	for _, cause := range answer.Status().Details.Causes {
		p, ok := partAt(cause.Field, r)
		if !ok || found[p] {
			continue
		}
		found[p] = true
		out = append(out, refusal{
			Refusal: Refusal{Part: p, Why: cause.Field + ": " + cause.Message, Since: time.Now()},
			wanted:  wanted.only(p), had: had.only(p),
		})
	}
	return out
}

// partAt finds the part that a path, e.g. status.containerStatuses[0].state, is in.
func partAt(path string, r request) (Part, bool) {
	path, ok := strings.CutPrefix(path, "status.")
	if !ok {
		return Part{}, false
	}
	name, below, _ := strings.Cut(path, ".")
	name, at, _ := strings.Cut(name, "[")
	index, err := strconv.Atoi(strings.TrimSuffix(at, "]"))
	if err != nil {
		index = -1
	}
	p := Part{Field: name}
	switch name {
	case regularList, initList, ephemeralList:
		// A transition is refused by the container's place in what the
		// apiserver has, anything else by that in what was sent.
		lists := [][]v1.ContainerStatus{*containers(&r.desired, name), *containers(&r.known, name)}
		if below == "state" {
			slices.Reverse(lists)
		}
		for _, list := range lists {
			if p.Container == "" && index >= 0 && index < len(list) {
				p.Container = list[index].Name
			}
		}
		return p, p.Container != ""
	case "podIP", "podIPs":
		p.Field = "podIPs"
	case "hostIP", "hostIPs":
		p.Field = "hostIPs"
	case "conditions", "observedGeneration", "qosClass", "resources", "allocatedResources":
	default:
		return Part{}, false
	}
	return p, true
}

// containers is the list of this name.
func containers(st *v1.PodStatus, name string) *[]v1.ContainerStatus {
	switch name {
	case initList:
		return &st.InitContainerStatuses
	case ephemeralList:
		return &st.EphemeralContainerStatuses
	}
	return &st.ContainerStatuses
}

// parts finds the parts of a status. Each container is looked up but once: a pod may have
// thousands, and all of them may be refused.
type parts struct {
	st    *v1.PodStatus
	lists map[string]*podutil.Index[string, v1.ContainerStatus]
}

func partsOf(st *v1.PodStatus) parts {
	lists := map[string]*podutil.Index[string, v1.ContainerStatus]{}
	for _, name := range []string{regularList, initList, ephemeralList} {
		byName := podutil.ByName(*containers(st, name))
		lists[name] = &byName
	}
	return parts{st, lists}
}

// only is a status with nothing but one part.
func (of parts) only(p Part) (out v1.PodStatus) {
	list := of.lists[p.Field]
	if list == nil {
		put(&out, *of.st, p)
		return out
	}
	if c := list.Find(p.Container); c != nil {
		*containers(&out, p.Field) = []v1.ContainerStatus{*c}
	}
	return out
}

// putAll makes the parts of a status that are refused what they are in this one, which may
// lack some of the containers.
func (of parts) putAll(st *v1.PodStatus, refused []refusal) {
	names := map[string][]string{}
	for i := range refused {
		if p := refused[i].Part; of.lists[p.Field] == nil {
			put(st, *of.st, p)
		} else {
			names[p.Field] = append(names[p.Field], p.Container)
		}
	}
	for field, refused := range names {
		list := containers(st, field)
		*list = putContainers(*list, of.lists[field], refused)
	}
}

// putContainers is a list with those of these names as they are in another, which may not
// have them.
func putContainers(list []v1.ContainerStatus, from *podutil.Index[string, v1.ContainerStatus], names []string) []v1.ContainerStatus {
	missing := make(map[string]bool, len(names))
	for _, name := range names {
		missing[name] = true
	}
	out := make([]v1.ContainerStatus, 0, len(list))
	for i := range list {
		c := &list[i]
		if missing[c.Name] {
			delete(missing, c.Name)
			if c = from.Find(c.Name); c == nil {
				continue
			}
		}
		out = append(out, *c)
	}
	for _, name := range names {
		if c := from.Find(name); missing[name] && c != nil {
			out = append(out, *c)
		}
	}
	return out
}

// put makes one part of a status what it is in another; containers are not among them.
func put(st *v1.PodStatus, from v1.PodStatus, p Part) {
	switch p.Field {
	case "podIPs":
		st.PodIP, st.PodIPs = from.PodIP, from.PodIPs
	case "hostIPs":
		st.HostIP, st.HostIPs = from.HostIP, from.HostIPs
	case "conditions":
		// The node's own are always right; those of others are refused by type.
		st.Conditions = slices.DeleteFunc(slices.Clone(st.Conditions), func(c v1.PodCondition) bool { return !owned(c.Type) })
		for _, c := range from.Conditions {
			if !owned(c.Type) {
				st.Conditions = append(st.Conditions, c)
			}
		}
	case "observedGeneration":
		st.ObservedGeneration = from.ObservedGeneration
	case "qosClass":
		st.QOSClass = from.QOSClass
	case "resources":
		st.Resources = from.Resources
	case "allocatedResources":
		st.AllocatedResources = from.AllocatedResources
	}
}

// owedLocked is the status that the apiserver is to have: what is desired, with what
// the apiserver has in place of each part that it refuses, and of an address that is not
// known yet. A refusal ends when its part has changed on either side.
func (e *entry) owedLocked() v1.PodStatus {
	if len(e.refused) == 0 {
		return e.withAddressLocked()
	}
	wanted, had := partsOf(&e.desired), partsOf(&e.known)
	e.refused = slices.DeleteFunc(e.refused, func(r refusal) bool {
		return !equal.Equal(wanted.only(r.Part), r.wanted) || !equal.Equal(had.only(r.Part), r.had)
	})
	out := e.withAddressLocked()
	had.putAll(&out, e.refused)
	return out
}

// withAddressLocked is what is desired, with the node's address that the apiserver has
// as long as podsync has none: right after its start, when what became of a static pod
// is known to the apiserver alone.
func (e *entry) withAddressLocked() v1.PodStatus {
	out := e.desired
	if out.HostIP == "" {
		out.HostIP, out.HostIPs = e.known.HostIP, e.known.HostIPs
	}
	if out.PodIP == "" && e.obj != nil && e.obj.Spec.HostNetwork {
		out.PodIP, out.PodIPs = e.known.PodIP, e.known.PodIPs
	}
	return out
}

// refuseLocked keeps what is refused for good, and returns what is new of it. A part
// that is refused although it was left out is not: what is known of the object is old,
// and a later try will do.
func (e *entry) refuseLocked(found []refusal) []refusal {
	var fresh []refusal
	known := make(map[Part]bool, len(e.refused))
	for i := range e.refused {
		known[e.refused[i].Part] = true
	}
	for _, r := range found {
		if !known[r.Part] {
			fresh = append(fresh, r)
		}
	}
	e.refused = append(e.refused, fresh...)
	return fresh
}
